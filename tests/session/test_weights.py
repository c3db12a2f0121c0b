"""Life of the weights: host copy, device copy, fetched copy; saving, restoring, resetting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import popart_jax as popart

from . import nets
from .nets import infer, linear, run, sgd, train, weights_of

X = np.asarray([1.0, -1.0, 0.5], np.float32)


def test_round_trip():
    proto, w = linear()
    session = train(proto, {"loss": "All"}, sgd(0.5))
    run(session, x=X)
    expected = w - 0.5 * X
    np.testing.assert_allclose(weights_of(session, w=w)["w"], expected)
    run(session, x=X)
    stale = {"w": np.empty_like(w)}
    session.readWeights(popart.PyWeightsIO(stale))
    np.testing.assert_allclose(stale["w"], expected, err_msg="readWeights gives what weightsToHost fetched last")
    session.weightsFromHost()
    np.testing.assert_allclose(weights_of(session, w=w)["w"], w, err_msg="the host copy did not change")


def test_write_then_from_host(capfd):
    proto, w = linear()
    session = train(proto, {"loss": "All"}, sgd(0.5))
    session.writeWeights(popart.PyWeightsIO({"w": 2 * w, "unknown": w}))
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({"other": w.copy()}))
    said = capfd.readouterr().err
    assert "writeWeights: this session has no weight 'unknown'" in said
    assert "readWeights: this session has no weight 'other'" in said
    assert run(session, x=X)["loss"] == (X * w).sum()
    session.weightsFromHost()
    assert run(session, x=X)["loss"] == (X * 2 * w).sum()


@pytest.mark.parametrize("bad", [np.zeros(4, np.float32), np.zeros(3, np.float16)])
def test_write_of_a_wrong_array(bad):
    proto, w = linear()
    session = train(proto, {"loss": "All"}, sgd())
    with pytest.raises(popart.popart_runtime_error, match="'w'"):
        session.writeWeights(popart.PyWeightsIO({"w": bad}))
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session, w=w)["w"], w)


def test_read_into_a_wrong_size():
    proto, _ = linear()
    session = train(proto, {"loss": "All"}, sgd())
    session.weightsToHost()
    with pytest.raises(popart.popart_runtime_error, match=r"sizes \(in bytes\) of src"):
        session.readWeights(popart.PyWeightsIO({"w": np.empty(4, np.float32)}))


def test_run_before_weights_from_host():
    proto, _ = linear()
    session = popart.TrainingSession(proto, nets.flow(1, {"loss": "All"}), "loss", sgd(), nets.device())
    session.prepareDevice()
    with pytest.raises(popart.popart_runtime_error, match="Must call weightsFromHost before run"):
        run(session, x=X)


def test_model_to_host_saves_state_and_restores_it(tmp_path):
    """Training on from a saved model gives the same weights as training on in one session."""
    proto, w = linear()
    optimizer = popart.Adam({"defaultLearningRate": (0.1, True)})
    first = train(proto, {"loss": "All"}, optimizer)
    run(first, x=X)
    first.modelToHost(str(tmp_path / "saved.onnx"))
    saved = onnx.load(tmp_path / "saved.onnx")
    assert [t.name for t in saved.graph.initializer] == ["w", "Accl1___w", "Accl2___w", "Step___w"]
    assert list(saved.graph.initializer[-1].float_data) == [1.0]
    second = train(str(tmp_path / "saved.onnx"), {"loss": "All"}, optimizer)
    for x in (X, 2 * X):
        run(first, x=x)
        run(second, x=x)
    np.testing.assert_array_equal(weights_of(first, w=w)["w"], weights_of(second, w=w)["w"])


def test_model_to_host_updates_the_host_copy(tmp_path):
    proto, w = linear()
    session = train(proto, {"loss": "All"}, sgd(0.5))
    run(session, x=X)
    session.modelToHost(str(tmp_path / "m.onnx"))
    run(session, x=X)
    session.weightsFromHost()
    np.testing.assert_allclose(weights_of(session, w=w)["w"], w - 0.5 * X)


def test_reset_host_weights(tmp_path):
    proto, w = linear()
    session = train(proto, {"loss": "All"}, sgd(0.5))
    run(session, x=X)
    session.resetHostWeights(proto)
    with pytest.raises(popart.popart_runtime_error, match="Must call weightsFromHost before run"):
        run(session, x=X)
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session, w=w)["w"], w)


def test_reset_with_unknown_weights():
    proto, _ = linear()
    other = nets.model("g (float[3] x) => (float[3] y) { y = Mul(x, v) }", v=np.ones(3, np.float32))
    session = train(proto, {"loss": "All"}, sgd())
    with pytest.raises(popart.popart_runtime_error, match="'v'"):
        session.resetHostWeights(other)
    session.resetHostWeights(other, True)


def test_constant_weights_refuse_changes():
    proto, w = linear()
    session = infer(proto, {"y": "All"})
    with pytest.raises(popart.popart_runtime_error, match="Cannot call resetHostWeights when constantWeights is set"):
        session.resetHostWeights(proto)
    with pytest.raises(popart.popart_runtime_error, match="constantWeights"):
        session.writeWeights(popart.PyWeightsIO({"w": w}))


def test_variable_weights_in_inference():
    proto, w = linear()
    session = infer(proto, {"y": "All"}, constantWeights=False)
    np.testing.assert_array_equal(run(session, x=X)["y"], X * w)
    session.writeWeights(popart.PyWeightsIO({"w": 3 * w}))
    session.weightsFromHost()
    np.testing.assert_array_equal(run(session, x=X)["y"], X * 3 * w)


def test_failed_run_leaves_weights():
    proto, w = linear()
    session = train(proto, {"loss": "All"}, sgd(0.5))
    with pytest.raises(popart.popart_runtime_error, match="Unexpected number of input elements for Tensor x"):
        run(session, x=np.zeros(4, np.float32))
    np.testing.assert_array_equal(weights_of(session, w=w)["w"], w)
    run(session, x=X)
    before = weights_of(session, w=w)["w"]
    for bad in ({"x": X.astype(np.float64)}, {}, {"x": X, "nope": X}):
        with pytest.raises(popart.popart_runtime_error):
            session.run(popart.PyStepIO(bad, session.initAnchorArrays()))
    np.testing.assert_array_equal(weights_of(session, w=w)["w"], before)


def test_half_weights_in_a_saved_model(tmp_path):
    proto, w = linear(np.float16)
    built = onnx.ModelProto.FromString(proto)
    session = train(built.SerializeToString(), {"loss": "All"}, sgd(0.5))
    run(session, x=X.astype(np.float16))
    session.modelToHost(str(tmp_path / "m.onnx"))
    again = infer(str(tmp_path / "m.onnx"), {"y": "All"})
    np.testing.assert_allclose(run(again, x=np.ones(3, np.float16))["y"], w - 0.5 * X.astype(np.float16))


def _fails_whole(session: popart.TrainingSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full while external data are written leaves the old ones."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    before = Path("moved.bin").read_bytes(), Path("m.onnx").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(popart.popart_exception, match="No space left on device"):
            session.modelToHost("m.onnx")
    assert (Path("moved.bin").read_bytes(), Path("m.onnx").read_bytes()) == before
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


def test_external_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    w0 = np.asarray([1, 2, 3], np.float32)
    w = builder.addInitializedInputTensor(w0, "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], reduction=popart.ReductionType.Sum)
    builder.saveInitializersExternally([w], "w.bin")
    optimizer = sgd(0.5, defaultMomentum=(0.9, True))
    session = popart.TrainingSession(
        builder.getModelProto(), nets.flow(1, {loss: "All"}), loss, optimizer, nets.device()
    )
    session.prepareDevice()
    session.weightsFromHost()
    run(session, **{x: X})
    session.updateExternallySavedTensorLocations("w.bin", "v.bin")
    session.modelToHost("m.onnx")
    np.testing.assert_array_equal(np.fromfile("w.bin", np.float32), w0)
    after = w0 - 0.5 * X
    np.testing.assert_allclose(np.fromfile("v.bin", np.float32), [*after, *(0.9 * X)], rtol=1e-6)
    session.modelToHost("m.onnx")  # the state is written where it was put the first time
    assert Path("v.bin").stat().st_size == 6 * 4
    session.updateExternallySavedTensorLocations("v.bin", "moved.bin")
    session.modelToHost("m.onnx")
    assert {e.value for t in onnx.load("m.onnx", load_external_data=False).graph.initializer
            for e in t.external_data if e.key == "location"} == {"moved.bin"}  # fmt: skip
    again = train("m.onnx", {loss: "All"}, optimizer, loss=loss)
    both = {"w": np.empty(3, np.float32), "Accl___w": np.empty(3, np.float32)}
    got = weights_of(again, **both)
    np.testing.assert_allclose(got["w"], after)
    np.testing.assert_allclose(got["Accl___w"], 0.9 * X, rtol=1e-6)
    run(session, **{x: X})
    _fails_whole(session, monkeypatch)
    session.modelToHost("m.onnx")
    assert np.all(np.fromfile("moved.bin", np.float32)[:3] != after)
    with pytest.raises(popart.popart_runtime_error, match=r"but file 'v.bin' already exists"):
        session.updateExternallySavedTensorLocations("w.bin", "v.bin")
    with pytest.raises(popart.popart_runtime_error, match=r"but file 'u.bin' does not exist"):
        session.updateExternallySavedTensorLocations("u.bin", "t.bin")
    with pytest.raises(popart.popart_runtime_error, match="No ONNX model initializers"):
        session.updateExternallySavedTensorLocations("w.bin", "t.bin")
