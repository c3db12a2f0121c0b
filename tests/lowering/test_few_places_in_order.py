"""Convolutions of few places read weights in the library's order in programs whose weights stay, and in no others."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper as nh

import popart_jax as popart
from popart_jax.lowering.kernels import onednn, ordered_weights
from popart_jax.ops import kernels

orders = onednn.usable() and ordered_weights._orders("float32")
pytestmark = pytest.mark.skipif(not orders, reason="the library has no order of its own here")

HEADER = '<ir_version: 8, opset_import: ["": 13]>'
TEXT = """g (float[2, 128, 5, 5] x) => (float[2, 512, 3, 3] y) {
    a = Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(x, w, b)
    r = Relu(a)
    y = Conv(r, v)
}"""
SHAPES = {"w": (512, 128, 3, 3), "b": (512,), "v": (512, 512, 1, 1)}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    proto, rng = onnx.parser.parse_model(f"{HEADER} {TEXT}"), np.random.default_rng(0)
    values = {n: rng.normal(size=s).astype(np.float32) / 16 for n, s in SHAPES.items()}
    proto.graph.initializer.extend(nh.from_array(v, n) for n, v in values.items())
    return proto


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(2, 128, 5, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(model: onnx.ModelProto, data: np.ndarray) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data})[0]


def ordered(made: Any) -> int:
    """Products with ordered weights in a session's program."""
    (executable,) = made._engine.executables.values()
    return executable.text.count("weights_prepacked")


def session(model: onnx.ModelProto) -> Any:
    flow, device = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    made = popart.InferenceSession(model.SerializeToString(), flow, device)
    made.prepareDevice()
    return made


def run(made: Any, x: np.ndarray) -> np.ndarray:
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": x}, anchors))
    return anchors["y"]


def test_an_inference_session_has_them(model: Any, data: np.ndarray, expected: Any, tmp_path: Any) -> None:
    made = session(model)
    assert ordered(made) == 2
    np.testing.assert_allclose(run(made, data), expected, rtol=1e-4, atol=1e-4)
    made.modelToHost(str(tmp_path / "model.onnx"))
    for before, after in zip(
        model.graph.initializer, onnx.load(tmp_path / "model.onnx").graph.initializer, strict=True
    ):
        np.testing.assert_array_equal(nh.to_array(before), nh.to_array(after))
    made.weightsFromHost()
    np.testing.assert_allclose(run(made, data), expected, rtol=1e-4, atol=1e-4)


def test_more_weights_are_not_kept_twice(model: Any, data: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MOST_ORDERED", 1 << 20)
    made = session(model)
    assert ordered(made) == 0
    np.testing.assert_allclose(run(made, data), expected, rtol=1e-4, atol=1e-4)


def test_weights_that_the_library_reads_otherwise_stay(model: Any, data: Any, expected: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(ordered_weights, "_read_so", {})
    monkeypatch.setattr(ordered_weights, "_tried", lambda shapes, _: [False] * len(shapes))
    made = session(model)
    assert ordered(made) == 0
    assert all(x.ndim > 1 or x.size == 512 for x in made._engine.fixed)  # they need not be brought back at each run
    np.testing.assert_allclose(run(made, data), expected, rtol=1e-4, atol=1e-4)


def test_a_function_with_weights_has_them_and_its_gradient_is_right(model: Any, data: Any, expected: Any) -> None:
    fn, params = popart.to_jax(model)
    bound = fn.with_weights(params)
    np.testing.assert_allclose(bound({"x": data})["y"], expected, rtol=1e-4, atol=1e-4)
    of_bound = jax.grad(lambda x: bound({"x": x})["y"].sum())(data)
    of_fn = jax.grad(lambda x: fn(params, {"x": x})["y"].sum())(data)
    np.testing.assert_allclose(of_bound, of_fn, rtol=1e-3, atol=1e-3)


def test_training_keeps_the_models_order(model: Any) -> None:
    builder = popart.Builder(model.SerializeToString())
    loss = builder.aiGraphcore.l1loss(["y"], 0.1)
    flow, device = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    made = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.01), device)
    made.prepareDevice()
    assert ordered(made) == 0
