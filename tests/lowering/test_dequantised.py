"""Products and convolutions of dequantised bytes are computed on the bytes, to the same numbers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

from popart_jax.lowering import Settings, evaluate
from popart_jax.lowering.passes import rewrite_for_kernels
from popart_jax.model.files.load import load
from popart_jax.ops.kernels import IPU, tracing_for

from ..platforms import EXECUTED

IMAGE = (2, 4, 6, 5)
SCALES = "q = QuantizeLinear(x, sx, zx) d = DequantizeLinear(q, sx, zx) e = DequantizeLinear<axis={axis}>(k, sw, zw) "
CASES: dict[str, tuple[str, int, tuple[int, ...], tuple[int, ...]]] = {
    "conv": ("y = Conv<pads=[1,1,1,1]>(d, e, b)", 0, IMAGE, (6, 4, 3, 3)),
    "conv without bias": ("y = Conv<strides=[2,1]>(d, e)", 0, IMAGE, (6, 4, 1, 1)),
    "depthwise": ("c = Conv<group=4, pads=[0,1,2,1]>(d, e) y = Relu(c)", 0, IMAGE, (4, 1, 3, 3)),
    "one dimension": ("y = Conv<dilations=[2]>(d, e)", 0, (2, 4, 9), (6, 4, 3)),
    "gemm": ("y = Gemm(d, e, b)", 1, (5, 7), (7, 6)),
    "gemm transposed": ("y = Gemm<transB=1>(d, e, b)", 0, (5, 7), (6, 7)),
    "product": ("y = MatMul(d, e)", 1, (2, 5, 7), (7, 6)),
    "product of transposed": ("t = Transpose<perm=[1,0]>(e) y = MatMul(d, t)", 0, (2, 5, 7), (6, 7)),
    "product of data": ("t = Transpose<perm=[0,2,1]>(d) y = MatMul(d, t)", 0, (2, 5, 7), (6,)),
}
OTHERS = {
    "half of it": ("y = Gemm<alpha=0.5>(d, e, b)", 1, (5, 7), (7, 6)),
    "scales along the sum": ("y = MatMul(d, e)", 0, (5, 7), (7, 6)),
    "scales along the data": ("y = MatMul(e, d)", 0, (7, 5), (6, 7)),
    "not of bytes": ("y = MatMul(x, e)", 1, (5, 7), (7, 6)),
}


def graph_of(case: tuple[str, int, tuple[int, ...], tuple[int, ...]], of_channels: bool) -> tuple[Any, ir.Graph]:
    """The model and its graph; the weights have scales and zero points of their own, or share them."""
    nodes, axis, shape, kernel = case
    rng = np.random.default_rng(len(nodes))
    count = (kernel[axis],) if of_channels else ()
    values = {
        "sx": np.float32(0.03), "zx": np.uint8(117), "k": rng.integers(-128, 128, kernel).astype(np.int8),
        "sw": (rng.random(count) + 0.1).astype(np.float32), "zw": rng.integers(-9, 9, count).astype(np.int8),
        "b": rng.normal(size=6).astype(np.float32),
    }  # fmt: skip
    sizes = ",".join(map(str, shape))
    header = '<ir_version: 8, opset_import: ["": 19]>'
    proto = onnx.parser.parse_model(
        f"{header} g(float[{sizes}] x) => (float[] y) {{ {SCALES.format(axis=axis)} {nodes} }}"
    )
    proto.graph.initializer.extend(nh.from_array(np.asarray(v), n) for n, v in values.items())
    return proto, load(proto).graph


def kinds(graph: ir.Graph) -> set[str]:
    return {node.op_type for node in graph}


def outcome(graph: ir.Graph, x: np.ndarray, platform: str) -> np.ndarray:
    with tracing_for(platform):
        return np.asarray(jax.jit(lambda x: evaluate(graph, {"x": x}, ["y"], Settings({"": 19}))["y"])(x))


@pytest.mark.parametrize("platform", EXECUTED)
@pytest.mark.parametrize("of_channels", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_bytes_are_multiplied_as_they_are(name: str, of_channels: bool, platform: str) -> None:
    proto, graph = graph_of(CASES[name], of_channels)
    rewrite_for_kernels(graph)
    assert any(kind.startswith("Dequantised") for kind in kinds(graph))
    x = np.random.default_rng(0).normal(size=CASES[name][2]).astype(np.float32)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(outcome(graph, x, platform), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_such_form_stays(name: str) -> None:
    _, graph = graph_of(OTHERS[name], True)
    rewrite_for_kernels(graph)
    assert not any(kind.startswith("Dequantised") for kind in kinds(graph))


def test_values_that_are_read_under_their_own_names_stay() -> None:
    _, graph = graph_of(CASES["product"], True)
    rewrite_for_kernels(graph, {"d"})
    assert "MatMul" in kinds(graph)


def test_sums_too_long_for_32_bits_are_made_of_floats() -> None:
    _, graph = graph_of(("y = MatMul(d, e)", 1, (1, 40000), (40000, 2)), False)
    rewrite_for_kernels(graph)
    assert "DequantisedMatMul" in kinds(graph)
    x = np.full((1, 40000), 4, np.float32)
    np.testing.assert_allclose(outcome(graph, x, "cpu"), outcome(graph, x, IPU), rtol=1e-3)


def test_the_scales_have_the_gradient_that_they_had() -> None:
    (_, plain), (_, graph) = (graph_of(CASES["gemm"], True) for _ in range(2))
    rewrite_for_kernels(graph)
    x = np.random.default_rng(0).normal(size=CASES["gemm"][2]).astype(np.float32)

    def loss(graph: ir.Graph, scales: Any) -> Any:
        return (evaluate(graph, {"x": x, **scales}, ["y"], Settings({"": 19}))["y"] ** 2).sum()

    scales = {"sx": np.float32(0.03), "sw": np.full(6, 0.2, np.float32)}
    found, wanted = (jax.grad(lambda s, g=g: loss(g, s))(scales) for g in (graph, plain))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3)
