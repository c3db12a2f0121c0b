"""A Relu with several readers: value, derivative, and that XLA computes it once."""

from __future__ import annotations

import re

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax.lowering.kernels.channels_last import shared_relu
from popart_jax.lowering.passes import rewrite_for_kernels, share_relus
from popart_jax.model.files.load import load
from popart_jax.ops.kernels import tracing_for

from ..platforms import ON_CPUS

RNG = np.random.default_rng(0)
BLOCKS, WIDTH = 3, 8
HEAD = '<ir_version: 8, opset_import: ["": 13]> g(float[2,8] x) => (float[2,8] y) '


def tower() -> bytes:
    """Residual blocks of one dense layer each."""
    nodes, last = ["h0 = Relu(x)"], "h0"
    for i in range(BLOCKS):
        nodes += [f"d{i} = MatMul({last}, w{i})", f"s{i} = Add(d{i}, {last})", f"h{i + 1} = Relu(s{i})"]
        last = f"h{i + 1}"
    proto = onnx.parser.parse_model(HEAD + "{ " + " ".join([*nodes, f"y = MatMul({last}, w0)"]) + " }")
    for i in range(BLOCKS):
        weight = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
    return proto.SerializeToString()


@ON_CPUS
def test_each_sum_reads_the_one_before_it_and_nothing_older() -> None:
    proto, x = tower(), RNG.normal(size=(2, WIDTH)).astype(np.float32)
    fn, params = popart.to_jax(proto)
    infer = fn.with_weights(params)
    expected = onnxruntime.InferenceSession(proto).run(None, {"x": x})[0]
    np.testing.assert_allclose(infer({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    (compiled,) = infer._programs.found.values()
    text = compiled.call.as_text()
    text = text[text.index("ENTRY") :]
    for product in re.findall(r"(%dot[.\d]*) = ", text):
        readers = re.findall(rf"\w+\(.*{re.escape(product)}[,)]", text)
        assert len(readers) <= 1, (product, readers)


def test_a_relu_with_one_reader_is_left_alone() -> None:
    graph = load(onnx.parser.parse_model(HEAD + "{ s = Add(x, x) r = Relu(s) y = Neg(r) }")).graph
    assert not share_relus(graph)


def test_only_cpus_need_it() -> None:
    graph = load(onnx.parser.parse_model(HEAD + "{ r = Relu(x) y = Mul(r, r) }")).graph
    with tracing_for("gpu"):
        rewrite_for_kernels(graph)
    assert [node.op_type for node in graph] == ["Relu", "Mul"]


def test_names_stay() -> None:
    graph = load(onnx.parser.parse_model(HEAD + "{ r = Relu(x) y = Mul(r, r) }")).graph
    assert share_relus(graph)
    assert [v.name for node in graph for v in node.outputs] == ["r", "y"]


SPECIAL = [0.0, -0.0, 1.5, -1.5, 2e-38, -3e38, 3e38, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_the_same_value_to_the_last_bit(dtype) -> None:
    x = np.array(SPECIAL[:4] if dtype is not np.float32 else SPECIAL).astype(dtype)
    found, expected = np.asarray(shared_relu(x)), np.asarray(jax.nn.relu(x))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    assert found.dtype == dtype


def test_the_derivative_is_that_of_relu_at_zero_too() -> None:
    x = np.array([0.0, -0.0, 1.0, -2.0, 1e-30], np.float32)
    ours, theirs = (jax.grad(lambda x, f=f: f(x).sum())(x) for f in (shared_relu, jax.nn.relu))
    np.testing.assert_array_equal(ours, theirs)
