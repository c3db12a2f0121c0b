"""Values with several readers: which of them are kept, that XLA computes them once, and their derivatives."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax.lowering.passes import channels_last, keep_values
from popart_jax.model.files.load import load

from ..platforms import ON_CPUS

RNG = np.random.default_rng(0)
BLOCKS, WIDTH = 3, 32
HEAD = '<ir_version: 8, opset_import: ["": 13]> '


def tower() -> bytes:
    """Residual blocks of one convolution by channel and one of single places each."""
    nodes, last = ["h0 = Conv<kernel_shape=[1,1]>(x, p0)"], "h0"
    for i in range(BLOCKS):
        nodes += [
            f"d{i} = Conv<group={WIDTH}, pads=[1,1,1,1]>({last}, w{i}, b{i})",
            f"c{i} = Conv<kernel_shape=[1,1]>(d{i}, p{i})",
            f"h{i + 1} = Add(c{i}, d{i})",
        ]
        last = f"h{i + 1}"
    text = f"g(float[1,{WIDTH},12,12] x) => (float[1,{WIDTH},12,12] y) {{ {' '.join([*nodes, f'y = Neg({last})'])} }}"
    proto = onnx.parser.parse_model(HEAD + text)
    for i in range(BLOCKS):
        for name, shape in (("w", (WIDTH, 1, 3, 3)), ("b", (WIDTH,)), ("p", (WIDTH, WIDTH, 1, 1))):
            weight = (RNG.normal(size=shape) / np.sqrt(WIDTH)).astype(np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"{name}{i}"))
    return proto.SerializeToString()


@ON_CPUS
def test_each_block_reads_the_one_before_it_and_nothing_older() -> None:
    proto, x = tower(), RNG.normal(size=(1, WIDTH, 12, 12)).astype(np.float32)
    fn, params = popart.to_jax(proto)
    infer = fn.with_weights(params)
    expected = onnxruntime.InferenceSession(proto).run(None, {"x": x})[0]
    np.testing.assert_allclose(infer({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    (compiled,) = infer._programs.found.values()
    text = compiled.call.as_text()
    text = text[text.index("ENTRY") :]
    operands = [line.count("%") - 1 for line in text.splitlines() if " fusion(" in line]
    assert max(operands) <= 9 + 5, sorted(operands)  # a kernel's elements and few others, of one block


def graph_of(nodes: str):
    """A graph on matrices x, a and b with the results y and z."""
    text = f"g(float[64,64] x, float[64,64] a, float[64,64] b) => (float[64,64] y, float[64,64] z) {{ {nodes} }}"
    return load(onnx.parser.parse_model(HEAD + text)).graph


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ("s = Add(a, b) y = MatMul(s, x) z = Neg(s)", ["s"]),
        ("s = Add(a, b) y = Softmax(s) z = Neg(s)", ["s"]),
        ("s = Add(a, b) i = Identity(s) y = Softmax(i) z = Neg(i)", ["i"]),
        ("s = Neg(a) y = MatMul(s, x) z = Neg(s)", ["s"]),  # the product reads it from memory in any case
        ("s = Neg(a) y = Softmax(s) z = Neg(s)", []),  # as fast to compute as to read
        ("s = Add(a, b) t = Sigmoid(s) y = Mul(s, t) z = Relu(x)", []),  # one kernel
        ("s = Add(a, b) k = Shape(s) y = Reshape(s, k) z = Relu(x)", []),
        ("s = Add(a, b) t = Sub(s, a) y = Softmax(t) z = Neg(t)", ["t"]),
    ],
)
def test_what_is_kept(nodes: str, wanted: list[str]) -> None:
    graph = graph_of(nodes)
    assert keep_values(graph) == bool(wanted)
    assert [node.outputs[0].name for node in graph if node.op_type == "Kept"] == wanted


def test_what_a_branch_reads_too() -> None:
    nodes = (
        "s = Add(a, b) c = ReduceMax<keepdims=0>(a) p = Cast<to=9>(c) z = Neg(s) y = If(p)<"
        "then_branch=t() => (float[64,64] u) { u = Abs(s) }, else_branch=e() => (float[64,64] v) { v = Exp(s) }>"
    )
    assert keep_values(graph_of(nodes))


def test_derivatives_and_values_of_a_graph_with_a_kept_value() -> None:
    text = "g(float[64,64] x) => (float[64,64] y) { s = Mul(x, x) t = Softmax(s) y = Add(t, s) }"
    fn, _ = popart.to_jax(onnx.parser.parse_model(HEAD + text), trainable=[])
    x, v = (RNG.normal(size=(64, 64)).astype(np.float32) for _ in range(2))

    def ours(x):
        return fn({}, {"x": x})["y"]

    def theirs(x):
        return jax.nn.softmax(x * x) + x * x

    for of in (lambda f: f(x), lambda f: jax.vjp(f, x)[1](v)[0], lambda f: jax.jvp(f, (x,), (v,))[1]):
        np.testing.assert_allclose(of(ours), of(theirs), rtol=1e-5, atol=1e-5)
    seen = jax.vmap(ours)(np.stack([x, v]))
    np.testing.assert_allclose(seen, jax.vmap(theirs)(np.stack([x, v])), rtol=1e-5, atol=1e-5)


POOL = "MaxPool<kernel_shape=[2,2], strides=[2,2]>"


@pytest.mark.parametrize(("nodes", "kept"), [
    (f"p = {POOL}(c) y = Flatten(p)", 1),  # read with channels first alone
    (f"p = {POOL}(c) r = Relu(p) y = Flatten(r)", 0),
    (f"p = {POOL}(c) d = Conv(p, w) q = GlobalAveragePool(p) s = Add(d, q) y = Flatten(s)", 0),
])  # fmt: skip
def test_pools_whose_results_are_turned(nodes: str, kept: int) -> None:
    text = f"g(float[2,32,16,16] x, float[32,32,1,1] w) => (float[2,n] y) {{ c = Conv(x, w) {nodes} }}"
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEAD + text))
    graph = load(proto).graph
    channels_last(graph)
    keep_values(graph)
    assert sum(node.op_type == "Kept" for node in graph) == kept
    x, w = RNG.normal(size=(2, 32, 16, 16)).astype(np.float32), RNG.normal(size=(32, 32, 1, 1)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x, "w": w})
    fn, params = popart.to_jax(proto)
    np.testing.assert_allclose(fn.jit(params, {"x": x, "w": w})["y"], expected, rtol=1e-4, atol=1e-4)
