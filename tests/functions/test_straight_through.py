"""Quantised models trained through their rounding: outputs of ONNX Runtime, gradients of PyTorch."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import optax
import pytest
from onnx import helper, numpy_helper
from onnxruntime import quantization

import popart_jax as popart

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g'
NETWORK = """ (float[N,2,6,6] x) => (float[N,3] y) {
  c = Conv<pads=[1,1,1,1]>(x, w0, b0) r = Relu(c) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
  d = Conv(p, w1, b1) e = Relu(d) s = Add(e, t) f = Flatten(s) y = Gemm<transB=1>(f, w2, b2) }"""
SHAPES = {"w0": (4, 2, 3, 3), "b0": (4,), "w1": (4, 4, 2, 2), "b1": (4,), "t": (4, 2, 2), "w2": (3, 16), "b2": (3,)}
X = np.random.default_rng(0).normal(size=(5, 2, 6, 6)).astype(np.float32)


class Samples(quantization.CalibrationDataReader):
    def __init__(self) -> None:
        self._rest = iter([{"x": X}])

    def get_next(self) -> Any:
        return next(self._rest, None)


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + NETWORK)
    rng = np.random.default_rng(1)
    for name, shape in SHAPES.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 0.5, shape).astype(np.float32), name))
    return model


@pytest.fixture
def quantised(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    logging.getLogger().setLevel(logging.ERROR)
    onnx.save(network(), tmp_path / "real.onnx")
    path = tmp_path / "quantised.onnx"
    if request.param == "dynamic":
        quantization.quantize_dynamic(tmp_path / "real.onnx", path)
        return path
    kind, per_channel = request.param
    quantization.quantize_static(
        tmp_path / "real.onnx", path, Samples(), quant_format=quantization.QuantFormat[kind], per_channel=per_channel
    )
    return path


def served(path: Path, x: np.ndarray = X) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(path).run(None, {"x": x})[0])


def served_exactly(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """By floats: optimised, ONNX Runtime would multiply bytes."""
    exact = onnxruntime.SessionOptions()
    exact.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString(), exact).run(None, {"x": x})[0])


STATIC = [("QDQ", True), ("QOperator", False)]


@pytest.mark.parametrize("quantised", STATIC, indirect=True, ids=str)
def test_a_quantised_model_is_trained_saved_and_served(quantised: Path, tmp_path: Path) -> None:
    fn, params = popart.to_jax(quantised, straight_through=True)
    step = float(np.ptp(served(quantised))) / 255
    np.testing.assert_allclose(fn(params, X)["y"], served(quantised), atol=1.5 * step)  # a tie may round either way
    assert len(params) == len(SHAPES)
    assert {p.dtype for p in params.values()} == {np.dtype(np.float32)}
    assert sorted(p.shape for p in params.values()) == sorted(SHAPES.values())
    target = np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32) / 4
    rule = optax.adam(1e-2)
    loss = lambda p: ((fn(p, X)["y"] - target) ** 2).mean()  # noqa: E731
    take, state = fn.exactly(jax.jit(jax.value_and_grad(loss))), rule.init(params)
    before, slope = take(params)
    assert all(np.abs(g).max() > 0 for g in slope.values())
    for _ in range(30):
        _, slope = take(params)
        moves, state = rule.update(slope, state)
        params = optax.apply_updates(params, moves)
    assert float(loss(params)) < 0.8 * before
    fn.save(tmp_path / "trained.onnx", params)
    np.testing.assert_allclose(served(tmp_path / "trained.onnx"), fn(params, X)["y"], atol=1.5 * step)
    kinds = [
        [(t.name, t.data_type) for t in onnx.load(p).graph.initializer] for p in (quantised, tmp_path / "trained.onnx")
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("quantised", STATIC, indirect=True, ids=str)
def test_untrained_it_is_saved_as_it_was(quantised: Path, tmp_path: Path) -> None:
    fn, params = popart.to_jax(quantised, straight_through=True)
    fn.save(tmp_path / "same.onnx", params)
    before, after = (onnx.load(p).graph for p in (quantised, tmp_path / "same.onnx"))
    for a, b in zip(before.initializer, after.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(a), numpy_helper.to_array(b), a.name)
    assert [_shown(n) for n in before.node] == [_shown(n) for n in after.node]


def _shown(node: onnx.NodeProto) -> tuple[Any, ...]:
    return node.op_type, node.domain, list(node.input), list(node.output), [str(a) for a in node.attribute]


@pytest.mark.parametrize("quantised", ["dynamic"], indirect=True)
def test_dynamic_quantisation_passes_gradients_to_its_input(quantised: Path) -> None:
    fn, params = popart.to_jax(quantised, straight_through=True)
    np.testing.assert_allclose(fn(params, X)["y"], served(quantised), rtol=1e-4, atol=1e-4)
    real, weights = popart.to_jax(network())
    found, plain = (jax.grad(lambda x, f=f, p=p: f(p, x)["y"].sum())(X) for f, p in ((fn, params), (real, weights)))
    assert np.vdot(found, plain) / np.linalg.norm(found) / np.linalg.norm(plain) > 0.95


def test_without_it_no_gradient_passes_and_parameters_before_the_rounding_are_named() -> None:
    text = "(float[4] x) => (float[4] y) { h = Mul(x, w) q = QuantizeLinear(h, s, z) y = DequantizeLinear(q, s, z) }"
    model = _constants(text, w=np.ones(4, np.float32))
    with pytest.warns(UserWarning, match=r"gradient of 1 of 1 parameters is zero.*\(w\)\. .*straight_through=True"):
        fn, params = popart.to_jax(model)
    assert not np.any(jax.grad(lambda x: fn(params, x)["y"].sum())(np.ones(4, np.float32)))


def _constants(text: str, **values: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + text)
    for name, x in ({"s": np.float32(0.1), "z": np.int8(3)} | values).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(x), name))
    return model


ROUNDED = (
    "(float[R,C] x) => (float[R,C] y) { q = QuantizeLinear<axis=0>(x, s, z) y = DequantizeLinear<axis=0>(q, s, z) }"
)


@pytest.mark.parametrize("per_channel", [False, True])
def test_gradients_are_those_of_fake_quantisation(per_channel: bool) -> None:
    torch = pytest.importorskip("torch")
    x = (np.random.default_rng(3).normal(size=(3, 40)) * 12).astype(np.float32)
    scale = np.array([0.1, 0.2, 0.05], np.float32) if per_channel else np.float32(0.1)
    zero = np.array([3, -7, 0], np.int8) if per_channel else np.int8(3)
    fn, params = popart.to_jax(_constants(ROUNDED, s=scale, z=zero), trainable="s", straight_through=True)
    weight = np.random.default_rng(4).normal(size=x.shape).astype(np.float32)
    loss = lambda p, x: (fn(p, x)["y"] * weight).sum()  # noqa: E731
    by_scale, by_x = jax.grad(loss, argnums=(0, 1))(params, x)
    given, s = torch.tensor(x, requires_grad=True), torch.tensor(scale, requires_grad=True)
    if per_channel:
        theirs = torch._fake_quantize_learnable_per_channel_affine(given, s, torch.tensor(zero).float(), 0, -128, 127)
    else:
        theirs = torch._fake_quantize_learnable_per_tensor_affine(
            given, s.reshape(1), torch.tensor([float(zero)]), -128, 127
        )
    np.testing.assert_allclose(fn(params, x)["y"], theirs.detach().numpy(), rtol=1e-6)
    (theirs * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(by_x, given.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(by_scale["s"], s.grad.numpy(), rtol=1e-3, atol=1e-3)


def test_whole_numbers_between_and_as_an_output() -> None:
    text = """(float[2,3] x) => (int8[3,2] t, float[3,2] y) {
        q = QuantizeLinear(x, s, z) t = Transpose(q) r = Reshape(t, shape) y = DequantizeLinear(r, s, z) }"""
    model = _constants(text, shape=np.array([3, 2]))
    x = np.random.default_rng(5).normal(size=(2, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = popart.to_jax(model, straight_through=True)
    found = fn(params, x)
    for name, theirs in zip(("t", "y"), session.run(None, {"x": x}), strict=True):
        assert found[name].dtype == theirs.dtype
        np.testing.assert_array_equal(found[name], theirs)
    np.testing.assert_array_equal(jax.grad(lambda x: fn(params, x)["y"].sum())(x), np.ones_like(x))


NARROW = """(float[2,4] x) => (float[2,3] y) {
    c = Clip(q, low, high) d = DequantizeLinear(c, s, z) y = MatMul(x, d) }"""
ROUNDED_BEFORE = NARROW.replace("{", "{ q = QuantizeLinear(w, s, z)")


@pytest.mark.parametrize("integer", [False, True])
def test_integers_between_limits_are_trained_saved_and_served(integer: bool, tmp_path: Path) -> None:
    """Brevitas writes narrow weights so, as floats or, by the older exporter, as integers named like constants."""
    torch = pytest.importorskip("torch")
    rng, scale = np.random.default_rng(9), np.float32(0.25)
    x, whole = rng.normal(size=(2, 4)).astype(np.float32), rng.integers(-7, 8, (4, 3))
    limits = {"s": scale, "z": np.int8(0), "low": np.int8(-7), "high": np.int8(7)}
    if integer:
        name = "/layer/Constant_1_output_0"
        model = _constants(NARROW, **limits)
        model.graph.initializer.append(numpy_helper.from_array(whole.astype(np.int8), name))
        model.graph.node[0].input[0] = name
    else:
        name = "w"
        model = _constants(ROUNDED_BEFORE, w=(whole * scale).astype(np.float32), **limits)
    fn, params = popart.to_jax(model, straight_through=True)
    np.testing.assert_array_equal(params.pop(name), whole * scale)
    assert not params
    given = torch.tensor(rng.normal(0, 1.5, (4, 3)).astype(np.float32), requires_grad=True)
    theirs = torch.tensor(x) @ torch.fake_quantize_per_tensor_affine(given, float(scale), 0, -7, 7)
    theirs.sum().backward()
    moved = {name: given.detach().numpy()}
    assert np.abs(moved[name]).max() > 7 * scale
    np.testing.assert_allclose(fn(moved, x)["y"], theirs.detach().numpy(), rtol=1e-6, atol=1e-6)
    slope = jax.grad(lambda p: fn(p, x)["y"].sum())(moved)
    np.testing.assert_allclose(slope[name], given.grad.numpy(), rtol=1e-6)
    fn.save(tmp_path / "moved.onnx", moved)
    y = served_exactly(onnx.load(tmp_path / "moved.onnx"), x)
    np.testing.assert_allclose(y, fn(moved, x)["y"], rtol=1e-6, atol=1e-6)


def test_an_integer_weight_behind_two_bounds_is_a_parameter() -> None:
    model = _constants(
        NARROW.replace("c = Clip(q", "b = Clip(q, low, high) c = Clip(b"), low=np.int8(-7), high=np.int8(7)
    )
    whole = np.random.default_rng(9).integers(-7, 8, (4, 3)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(whole, "q"))
    fn, params = popart.to_jax(model, straight_through=True)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(fn(params, x)["y"], served_exactly(model, x), rtol=1e-6)


def test_what_an_operator_makes_of_integers_has_its_own_type() -> None:
    text = """(float[2,3] x) => (float[2,3] y, int64[2] a, int8[2,4] j) {
        q = QuantizeLinear(x, s, z) f = Cast<to=1>(q) y = Mul(f, s) a = ArgMax<axis=1, keepdims=0>(q)
        j = Concat<axis=1>(q, more) }"""
    model = _constants(text, more=np.int8([[3], [4]]))
    x = np.random.default_rng(5).normal(size=(2, 3)).astype(np.float32)
    fn, params = popart.to_jax(model, straight_through=True)
    assert list(params) == ["s"]  # it multiplies, too
    found = fn(params, x)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for name, theirs in zip(("y", "a", "j"), session.run(None, {"x": x}), strict=True):
        assert found[name].dtype == theirs.dtype
        np.testing.assert_array_equal(found[name], theirs)
    np.testing.assert_allclose(jax.grad(lambda x: fn(params, x)["y"].sum())(x), np.ones_like(x), rtol=1e-6)


def test_a_sum_of_quantised_numbers_is_refused_since_integers_overflow() -> None:
    text = """(float[2] x) => (int8[2] y) { q = QuantizeLinear(x, s, z) y = Add(q, q) }"""
    with pytest.raises(popart.popart_exception, match="is a Add, through which no gradient"):
        popart.to_jax(_constants(text), straight_through=True)


def test_a_quantised_softmax_follows_the_opset_it_names() -> None:
    """Before 13 the axis began a row of all that follows."""
    scale, zero = np.float32(1 / 256), np.uint8(0)
    text = """(float[2,2,3] x) => (float[2,2,3] y) { q = QuantizeLinear(x, s, z)
        p = com.microsoft.QLinearSoftmax<axis=1, opset=11>(q, s, z, t, n) y = DequantizeLinear(p, t, n) }"""
    model = _constants(text, s=np.float32(0.05), z=np.uint8(128), t=scale, n=zero)
    model.opset_import.add(domain="com.microsoft", version=1)
    x = np.random.default_rng(5).normal(size=(2, 2, 3)).astype(np.float32)
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = popart.to_jax(model, straight_through=True)
    np.testing.assert_allclose(fn(params, x)["y"], theirs, atol=1.01 * scale)


def test_an_operator_without_a_derivative_is_refused() -> None:
    node = helper.make_node("MulInteger", ["x", "z", "x", "z"], ["y"], "n", domain="com.microsoft")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.INT8, [2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [2])],
        [numpy_helper.from_array(np.int8(1), "z")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    )
    with pytest.raises(popart.popart_exception, match="node 'n' is a MulInteger"):
        popart.to_jax(model, straight_through=True)
