"""Infinities and NaN are where the plain form has them, whatever pass chose the layout and whatever form computes.

Each pass of `PASSES` runs on each graph below; one that changes none of them needs a graph here.
"""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from popart_jax.lowering.interpreter import Settings, evaluate
from popart_jax.lowering.passes import PASSES, rewrite_for_kernels
from popart_jax.model.files.load import load
from popart_jax.ops.kernels import IPU, tracing_for

from ..platforms import EXECUTED, ON_CPUS

OPSETS = {"": 17, "ai.graphcore": 1}
SPECIAL = (np.inf, -np.inf, np.nan)

IMAGE = (2, 8, 6, 6)
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, tuple[int, ...]]]] = {
    "conv": ("y = Conv<pads=[1,1,1,1]>(x, w, b)", IMAGE, {"w": (4, 8, 3, 3), "b": (4,)}),
    "conv strided": ("y = Conv<pads=[0,1,1,0], strides=[2,2]>(x, w)", IMAGE, {"w": (4, 8, 3, 3)}),
    "conv dilated": ("y = Conv<dilations=[2,2]>(x, w)", IMAGE, {"w": (4, 8, 3, 3)}),
    "conv larger than the map": ("y = Conv<pads=[3,3,3,3]>(x, w)", (1, 4, 2, 2), {"w": (4, 4, 5, 5)}),
    "conv pointwise": ("y = Conv<strides=[2,2]>(x, w, b)", IMAGE, {"w": (4, 8, 1, 1), "b": (4,)}),
    "conv of two groups": ("y = Conv<group=2>(x, w)", IMAGE, {"w": (6, 4, 3, 3)}),
    "conv of many groups": ("y = Conv<group=8, pads=[1,1,1,1]>(x, w)", (1, 32, 5, 5), {"w": (32, 4, 3, 3)}),
    "conv depthwise": ("y = Conv<group=8, pads=[1,1,1,1]>(x, w)", IMAGE, {"w": (8, 1, 3, 3)}),
    "conv depthwise strided": ("y = Conv<group=8, strides=[2,2]>(x, w)", IMAGE, {"w": (8, 1, 3, 3)}),
    "conv of one dimension": ("y = Conv<pads=[2,2]>(x, w)", (2, 8, 9), {"w": (4, 8, 5)}),
    "conv of three dimensions": ("y = Conv<pads=[1,1,1,1,1,1]>(x, w)", (1, 3, 4, 4, 4), {"w": (4, 3, 3, 3, 3)}),
    "conv transposed": ("y = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(x, w)", IMAGE, {"w": (8, 4, 4, 4)}),
    "batch normalisation": (
        "a = Conv(x, w) y = BatchNormalization(a, s, b, m, v)",
        IMAGE,
        {"w": (4, 8, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,)},
    ),
    "scaled weights": (
        "f = Reshape(s, shape) k = Mul(w, f) y = Conv(x, k, b)",
        (1, 96, 4, 4),
        {"w": (96, 96, 3, 3), "s": (96,), "b": (96,)},
    ),
    "max pool": ("a = Conv(x, w) y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)", IMAGE, {"w": (4, 8, 3, 3)}),
    "max pool padded": (
        "a = Conv(x, w) y = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(a)", IMAGE, {"w": (4, 8, 3, 3)},
    ),
    "max pool of large windows": ("a = Conv(x, w) y = MaxPool<kernel_shape=[5,5]>(a)", IMAGE, {"w": (4, 8, 1, 1)}),
    "average pool": (
        "a = Conv(x, w) y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(a)", IMAGE, {"w": (4, 8, 3, 3)},
    ),
    "global average": ("a = Conv(x, w) y = GlobalAveragePool(a)", IMAGE, {"w": (4, 8, 3, 3)}),
    "elementwise": (
        "a = Conv(x, w) c = Mul(a, s) d = Clip(c, low, high) e = Sigmoid(a) g = Sub(d, e) y = Concat<axis=1>(g, a)",
        IMAGE,
        {"w": (4, 8, 3, 3), "s": (4, 1, 1)},
    ),
    "residual": (
        "a = Conv<pads=[1,1,1,1]>(x, w) r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, w) d = Add(c, r) y = Relu(d)",
        IMAGE,
        {"w": (8, 8, 3, 3)},
    ),
    "shared relu": ("r = Relu(x) a = Exp(r) b = Neg(r) y = Add(a, b)", (5, 7), {}),
    "dense": ("y = Gemm<transB=1, alpha=0.5>(x, w, b)", (5, 7), {"w": (6, 7), "b": (6,)}),
    "turned weights": ("t = Transpose(w) y = MatMul(x, t)", (5, 7), {"w": (6, 7)}),
    "turned data": ("a = Neg(x) t = Transpose<perm=[0,2,1]>(a) y = MatMul(x, t)", (2, 5, 7), {}),
    "quantised": (
        """q = QuantizeLinear(x, unit, point) d = DequantizeLinear(q, unit, point) e = DequantizeLinear(bytes, unit)
        m = MatMul(d, e) y = Add(m, x)""",
        (5, 7),
        {},
    ),
    "moved bytes": (
        """q = QuantizeLinear(x, unit, point) d = DequantizeLinear(q, unit, point) t = Transpose(d)
        u = Transpose(t) r = QuantizeLinear(u, unit, point) e = DequantizeLinear(r, unit, point) y = Add(e, x)""",
        (5, 7),
        {},
    ),
    "slices in turn": (
        """a = ai.graphcore.DynamicSlice<axes=[0], sizes=[2], noOverlap=1>(x, first)
        c = ai.graphcore.DynamicSlice<axes=[0], sizes=[2], noOverlap=1>(x, last) y = Add(a, c)""",
        (5, 7),
        {},
    ),
}  # fmt: skip
CONSTANTS = {
    "shape": np.array([-1, 1, 1, 1], np.int64), "low": np.float32(-1), "high": np.float32(1),
    "v": np.array([0.5, 1, 2, 4], np.float32), "first": np.array([0], np.uint32), "last": np.array([3], np.uint32),
    "bytes": np.arange(49, dtype=np.int8).reshape(7, 7), "unit": np.float32(0.1), "point": np.uint8(9),
}  # fmt: skip


def graph_of(case: str) -> ir.Graph:
    nodes, shape, weights = CASES[case]
    rng = np.random.default_rng(len(case))
    sizes = ",".join(map(str, shape))
    header = '<ir_version: 8, opset_import: ["": 17, "ai.graphcore": 1]>'
    proto = onnx.parser.parse_model(f"{header} g(float[{sizes}] x) => (y) {{ {nodes} }}")
    values = {n: rng.normal(size=s).astype(np.float32) for n, s in weights.items()}
    values |= {n: v for n, v in CONSTANTS.items() if n in values or f"{n})" in nodes or f"{n}," in nodes}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    return load(proto).graph


def data(case: str, which: int) -> np.ndarray:
    """Ordinary numbers, with one or two special ones among them."""
    rng = np.random.default_rng(which)
    x = rng.normal(size=CASES[case][1]).astype(np.float32)
    x.reshape(-1)[rng.choice(x.size, 1 + which % 2, replace=False)] = SPECIAL[which % 3]
    return x


def results(graph: ir.Graph, case: str, platform: str) -> list[np.ndarray]:
    with tracing_for(platform), jax.default_device(jax.devices("cpu")[0] if platform == IPU else None):
        run = jax.jit(lambda x: evaluate(graph, {"x": x}, ["y"], Settings(OPSETS))["y"])
        return [np.asarray(run(data(case, i))) for i in range(6)]


@cache
def plain(case: str) -> list[np.ndarray]:
    """What the operators themselves say: no pass, and none of the forms for platforms that run programs."""
    return results(graph_of(case), case, IPU)


def compare(found: list[np.ndarray], case: str) -> None:
    assert not all(np.isfinite(y).all() for y in plain(case))
    for y, wanted in zip(found, plain(case), strict=True):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
        np.testing.assert_allclose(y, wanted, rtol=2e-4, atol=2e-4)  # NaN and infinities must be the same


def test_each_pass_changes_a_graph() -> None:
    changed = {name: [case for case in CASES if rewrite(graph_of(case), ())] for name, rewrite in PASSES.items()}
    assert all(changed.values()), changed


@pytest.mark.parametrize("platform", EXECUTED)
@pytest.mark.parametrize("case", CASES)
def test_all_passes_together(case: str, platform: str) -> None:
    graph = graph_of(case)
    rewrite_for_kernels(graph)
    compare(results(graph, case, platform), case)


@ON_CPUS
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PASSES)
def test_each_pass_alone(name: str, case: str) -> None:
    graph = graph_of(case)
    if PASSES[name](graph, ()):
        compare(results(graph, case, "cpu"), case)
