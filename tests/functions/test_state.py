"""Running statistics of batch normalisation: state in, state out, beside PyTorch."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart

RNG = np.random.default_rng(2)


def network(opset: int) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g(float[N,3,5,5] x) => (float[N,4,5,5] y) {{ '
        "a = Conv(x, w) b = BatchNormalization<epsilon = 0.00001, momentum = 0.9>(a, s, o, mean, var) y = Relu(b) }"
    )
    shapes = {"w": (4, 3, 1, 1), "s": (4,), "o": (4,), "mean": (4,)}
    for name, shape in shapes.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(4, 0.7, np.float32), "var"))
    return model


@pytest.mark.parametrize("opset", [9, 13, 15, 17])
def test_training_uses_and_updates_the_statistics(opset: int) -> None:
    torch = pytest.importorskip("torch")
    model = network(opset)
    fn, params = popart.to_jax(model)
    assert set(params) == {"w", "s", "o"}
    state = fn.initial_state
    assert set(state) == {"mean", "var"}
    x = RNG.normal(size=(6, 3, 5, 5)).astype(np.float32)

    conv, norm = torch.nn.Conv2d(3, 4, 1, bias=False), torch.nn.BatchNorm2d(4, momentum=0.1)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor(np.asarray(params["w"])))
        for name, target in (
            ("s", norm.weight),
            ("o", norm.bias),
            ("mean", norm.running_mean),
            ("var", norm.running_var),
        ):
            target.copy_(torch.tensor(np.asarray({**params, **state}[name])))
    y = torch.relu(norm(conv(torch.tensor(x))))
    y.square().sum().backward()

    def loss(p):
        out, new = fn(p, x, state=state, training=True)
        return (out["y"] ** 2).sum(), (out, new)

    gradients, (out, new) = jax.jit(jax.grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(out["y"], y.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new["mean"], norm.running_mean.numpy(), rtol=1e-5, atol=1e-6)
    count = x.shape[0] * 25  # PyTorch corrects the variance, ONNX does not
    theirs = 0.9 * 0.7 + (norm.running_var.numpy() - 0.9 * 0.7) * (count - 1) / count
    np.testing.assert_allclose(new["var"], theirs, rtol=1e-5)
    for name, target in (("w", conv.weight), ("s", norm.weight), ("o", norm.bias)):
        np.testing.assert_allclose(gradients[name], target.grad.numpy(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("opset", [9, 17])
def test_a_layer_that_is_applied_twice_counts_both_batches(opset: int) -> None:
    torch = pytest.importorskip("torch")
    model = network(opset)
    again = onnx.helper.make_node("BatchNormalization", ["y", "s", "o", "mean", "var"], ["z"], momentum=0.9)
    model.graph.node.append(again)
    model.graph.output[0].name = "z"
    fn, params = popart.to_jax(model)
    x = RNG.normal(size=(6, 3, 5, 5)).astype(np.float32)
    out, new = jax.jit(lambda p: fn(p, x, state=fn.initial_state, training=True))(params)
    weights = {n: torch.tensor(np.asarray(v)) for n, v in {**params, **fn.initial_state}.items()}
    norm = torch.nn.BatchNorm2d(4, momentum=0.1)
    norm.load_state_dict(
        {"weight": weights["s"], "bias": weights["o"], "running_mean": weights["mean"], "running_var": weights["var"]},
        strict=False,
    )
    with torch.no_grad():
        y = norm(torch.relu(norm(torch.conv2d(torch.tensor(x), weights["w"]))))
    np.testing.assert_allclose(out["z"], y.numpy(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(new["mean"], norm.running_mean.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new["var"], norm.running_var.numpy(), rtol=2e-2)  # PyTorch corrects the variance


def test_the_stored_state_is_numbers_where_a_compiled_function_asked_for_it_first() -> None:
    fn, params = popart.to_jax(network(17))
    x = np.ones((1, 3, 5, 5), np.float32)
    jax.jit(lambda p: fn(p, x, state=fn.initial_state))(params)
    np.testing.assert_array_equal(fn.initial_state["var"], np.full(4, 0.7, np.float32))


def test_inference_hands_the_state_through() -> None:
    fn, params = popart.to_jax(network(17))
    x = RNG.normal(size=(2, 3, 5, 5)).astype(np.float32)
    state = {"mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32)}
    out, same = fn(params, x, state=state)
    assert same.keys() == state.keys()
    np.testing.assert_array_equal(same["mean"], state["mean"])
    assert not np.allclose(out["y"], fn(params, x)["y"])
    np.testing.assert_allclose(fn(params, x, state=fn.initial_state)[0]["y"], fn(params, x)["y"], rtol=1e-6)


def test_statistics_are_saved_with_the_parameters(tmp_path) -> None:
    import onnxruntime

    fn, params = popart.to_jax(network(17))
    x = RNG.normal(size=(4, 3, 5, 5)).astype(np.float32)
    _, state = fn(params, x, state=fn.initial_state, training=True)
    fn.save(tmp_path / "trained.onnx", params, state)
    theirs = onnxruntime.InferenceSession(tmp_path / "trained.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(fn(params, x, state=state)[0]["y"], np.asarray(theirs), rtol=1e-4, atol=1e-5)


MERGED = """<ir_version: 8, opset_import: ["": 17]> g (float[4,2] x) => (float[4,2] y) {
    h = BatchNormalization(x, one, zero, zero, one) kept = Identity(zero)
    k = Mul(h, one) y = BatchNormalization(k, one, zero, kept, one) }"""


@pytest.mark.parametrize("split", [False, True])
def test_statistics_that_an_exporter_merged_with_weights_are_apart(split: bool, tmp_path: Path) -> None:
    """PyTorch's exporter stores equal tensors once: of a network that was not trained, ones and zeros."""
    model = onnx.parser.parse_model(MERGED)
    stored = {"one": np.ones(2, np.float32), "zero": np.zeros(2, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, n) for n, x in stored.items())
    x = np.random.default_rng(0).normal(2, 3, (4, 2)).astype(np.float32)
    fn, params = popart.to_jax(model, split=split)
    assert set(params) >= {"one", "zero"}
    assert len(fn.initial_state) == 4
    assert "kept" in fn.initial_state
    _, state = fn(params, x, state=fn.initial_state, training=True)
    assert all((state[name] != first).all() for name, first in fn.initial_state.items() if name != "kept")
    slope = jax.grad(lambda p: fn({**params, **p}, x)["y"].sum())({"zero": params["zero"]})
    np.testing.assert_allclose(slope["zero"], 4 if split else 8, rtol=1e-4)  # a bias; as a mean it had the other sign
    fn.save(tmp_path / "out.onnx", params, state)
    (served,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})
    np.testing.assert_allclose(fn({**params, **state}, x)["y"], np.asarray(served), rtol=1e-4, atol=1e-5)


def test_a_layer_that_the_file_has_frozen_beside_others_stays_so() -> None:
    """As `torch.onnx.export(training=TrainingMode.PRESERVE)` writes networks whose first layers are in `eval` mode."""
    text = """<ir_version: 8, opset_import: ["": 15]> g(float[6, 3] x) => (float[6, 3] y) {
        a = BatchNormalization<training_mode=0>(x, s, o, mean1, var1)
        y, mean, var = BatchNormalization<training_mode=1, momentum=0.5>(a, s, o, mean2, var2)
    }"""
    model = onnx.parser.parse_model(text)
    for name, value in {"s": 2, "o": 1, "mean1": 3, "var1": 4, "mean2": 0, "var2": 1}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, value, np.float32), name))
    fn, params = popart.to_jax(model)
    x = RNG.normal(size=(6, 3)).astype(np.float32)
    out, new = fn(params, x, state=fn.initial_state, training=True)
    a = 2 * (x - 3) / np.sqrt(4 + 1e-5) + 1
    np.testing.assert_allclose(out["y"], 2 * (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5) + 1, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(new["mean1"], np.full(3, 3, np.float32))
    np.testing.assert_allclose(new["mean2"], a.mean(0) / 2, rtol=1e-5)
