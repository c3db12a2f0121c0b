"""Beside JAX's compilation cache: who finds its own programs there traces nothing, and gets what tracing would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popart_jax as popart
from popart_jax._compat.jax import compilation_cache
from popart_jax.session import engine
from popart_jax.session.preparing import prepared

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-2, 3, 4 * 1100, dtype=np.float32).reshape(4, 1100)  # more than the message holds


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of its own."""
    with compilation_cache(str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tracing functions that ran."""
    ran: list[str] = []

    def counted(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            ran.append(name)
            return fn(*args, **options)

        return call

    monkeypatch.setattr(engine, "trace", counted("step", engine.trace))
    monkeypatch.setattr(prepared, "graph_types", counted("types", prepared.graph_types))
    return ran


def model(rows: np.ndarray | None = None, op: str = "relu") -> onnx.ModelProto:
    """Rows of ``op(x @ w)``."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", list(X.shape)), "x")
    w = builder.addInitializedInputTensor(W, "w")
    made = builder.aiOnnx.matmul([x, w])
    out = getattr(builder.aiOnnx, op)([made]) if op != "own" else builder.customOp("Own", 1, "acme", [made], {})[0]
    if rows is not None:
        out = builder.aiOnnx.gather([out, builder.addInitializedInputTensor(rows, "rows")])
    builder.addOutputTensor(out)
    return onnx.load_model_from_string(builder.getModelProto())


def inference(proto: onnx.ModelProto, **options: Any) -> np.ndarray:
    """The output of a model, by a session of its own."""
    chosen = popart.SessionOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    out = proto.graph.output[0].name
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(proto.SerializeToString(), flow, device, userOptions=chosen)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": X}, anchors))
    assert session.getSerializedGraph()
    return anchors[out]


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def test_a_second_session_traces_nothing(folder: Path, traces: list[str]) -> None:
    proto = model()
    np.testing.assert_allclose(inference(proto), relu(X @ W), rtol=1e-5, atol=1e-5)
    assert traces == ["types", "step"]
    assert len(list(folder.glob("popart_jax-*.popef"))) == 1
    traces.clear()
    (weight,) = proto.graph.initializer
    weight.CopyFrom(numpy_helper.from_array(-W, weight.name))
    first = inference(proto)  # another field holds the data now: another message
    traces.clear()
    weight.CopyFrom(numpy_helper.from_array(2 * W, weight.name))  # values of weights are no part of a program
    np.testing.assert_allclose(inference(proto), relu(X @ W) * 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(first, relu(X @ -W), rtol=1e-5, atol=1e-5)
    assert traces == ["step"]  # by getSerializedGraph: a program from a file has no text


def test_what_jax_knows_already_is_kept_all_the_same(folder: Path, traces: list[str]) -> None:
    """As after an update of this package, which makes another key for the same program."""
    proto = model()
    for _ in range(2):
        inference(proto)
        (path,) = folder.glob("popart_jax-*.popef")
        path.unlink()
    assert traces == ["types", "step"] * 2


@pytest.mark.parametrize("options", [{"constantWeights": False}, {"enableStochasticRounding": True}])
def test_other_options_are_another_program(folder: Path, traces: list[str], options: dict[str, Any]) -> None:
    proto = model()
    inference(proto)
    traces.clear()
    inference(proto, **options)
    assert traces == ["types", "step"]


def test_constants_of_a_program_are_part_of_its_key(folder: Path) -> None:
    proto = model(rows=np.zeros(5000, np.int32))
    for row in (0, 2):
        rows = np.full(5000, row, np.int32)
        proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(rows, proto.graph.initializer[1].name))
        np.testing.assert_allclose(inference(proto), relu(X @ W)[rows], rtol=1e-5, atol=1e-5)


def test_what_no_key_can_tell_is_not_kept(folder: Path, traces: list[str]) -> None:
    proto = model(op="own")
    for factor in (2.0, 3.0):
        popart.custom_op("acme", "Own")(lambda x, /, factor=factor: x * np.float32(factor))
        np.testing.assert_allclose(inference(proto), X @ W * factor, rtol=1e-5, atol=1e-5)
    assert traces == ["types", "step"] * 2
    assert not list(folder.glob("popart_jax-*.popef"))


def test_a_damaged_file_is_no_harm(folder: Path, traces: list[str]) -> None:
    proto = model()
    inference(proto)
    (path,) = folder.glob("popart_jax-*.popef")
    path.write_bytes(path.read_bytes()[:200])
    traces.clear()
    np.testing.assert_allclose(inference(proto), relu(X @ W), rtol=1e-5, atol=1e-5)
    assert traces == ["types", "step"]


def test_without_a_folder_nothing_is_kept(traces: list[str]) -> None:
    proto = model()
    with compilation_cache(None):
        for _ in range(2):
            inference(proto)
    assert traces == ["types", "step"] * 2


def test_training_goes_on_from_a_kept_program(folder: Path, traces: list[str]) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", list(X.shape)), "x")
    w = builder.addInitializedInputTensor(W, "w")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0, popart.ReductionType.Sum)
    found = [_trained(builder.getModelProto(), x, w, loss) for _ in range(2)]
    assert traces == ["types", "step"]
    gradient = X.T @ np.sign(X @ W)
    for values in found:
        np.testing.assert_allclose(values[0], W - 0.125 * gradient, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(*[values[1] for values in found])


def _trained(proto: bytes, x: str, w: str, loss: str) -> list[np.ndarray]:
    """The weight after each of two steps with momentum."""
    optimizer = popart.SGD({"defaultLearningRate": (0.125, False), "defaultMomentum": (0.5, True)})
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(proto, flow, loss, optimizer, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    session.weightsFromHost()
    anchors, found = session.initAnchorArrays(), []
    for _ in range(2):
        session.run(popart.PyStepIO({x: X}, anchors))
        session.weightsToHost()
        found.append(np.zeros_like(W))
        session.readWeights(popart.PyWeightsIO({w: found[-1]}))
    return found
