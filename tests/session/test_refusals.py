"""Refusals of sessions and of what is handed to them: a row each, with the class and the words of the error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import dropin, poponnx
from popart_jax.poponnx.stepio import PyStepIO as OldStepIO
from popart_jax.session.weights.files import makedirsAndCheckWritable

from . import nets
from .nets import flow, infer, linear, sgd, train

OLD, RUN = popart.popart_exception, popart.popart_runtime_error
X = np.ones(3, np.float32)
Row = tuple[Callable[[], Any], type[Exception], str]


def ready() -> popart.TrainingSession:
    return train(linear()[0], {"loss": "All"}, sgd())


def inference(**options: Any) -> popart.InferenceSession:
    return infer(linear()[0], {"y": "All"}, **options)


def anchors(session: Any, **changed: np.ndarray) -> dict[str, np.ndarray]:
    return {**session.initAnchorArrays(), **changed}


def on_ipu(use: Callable[[popart.TrainingSession], Any], **options: Any) -> Callable[[], Any]:
    """What `use` does with a session on an emulated IPU."""

    def call() -> None:
        with popart.DeviceManager().acquireAvailableDevice(1) as device:
            made = nets.make_options(**options)
            use(popart.TrainingSession(linear()[0], flow(1, {"loss": "All"}), "loss", sgd(), device, userOptions=made))

    return call


def written(name: str, data: bytes) -> str:
    Path(name).write_bytes(data)
    return name


def exported_by_another(session: popart.TrainingSession) -> None:
    session.compileAndExport("one.popef")
    other = popart.TrainingSession(
        linear()[0], flow(2, {"loss": "All"}), "loss", sgd(), session._parts.prepared.request.device
    )
    other.loadExecutable("one.popef")


def fetched() -> popart.TrainingSession:
    session = ready()
    session.weightsToHost()
    return session


def read_only() -> None:
    session = inference()
    results = anchors(session)
    results["y"].flags.writeable = False
    session.run(popart.PyStepIO({"x": X}, results))


def callbacks(output: Callable[[str], Any]) -> Callable[[], Any]:
    """A run whose anchors go where `output` says."""
    taken = popart.PyStepIOCallback(lambda name, early: X, lambda name: None, output, lambda name: None)
    return lambda: inference().run(taken)


def attach_twice() -> None:
    manager = popart.DeviceManager()
    manager.setOnDemandAttachTimeout(0)
    pool = popart.DeviceConnectionType
    with manager.acquireAvailableDevice(1, connectionType=pool.Always) as first:
        second = manager.acquireDeviceById(first.id, connectionType=pool.OnDemand)
        session = popart.InferenceSession(linear()[0], flow(1, {"y": "All"}), second)
        session.prepareDevice()


def scaled_adam() -> None:
    settings = popart.AutomaticLossScalingSettings(True)
    optimizer = popart.Adam({"lossScaling": (8, False)}, scaled_optimizer_state=True)
    train(linear(np.float16)[0], {"loss": "All"}, optimizer, automaticLossScalingSettings=settings)


def two_models() -> tuple[str, str]:
    names = ("a.onnx", "b.onnx")
    for name in names:
        Path(name).write_bytes(linear()[0])
    return names


def numerics() -> popart.NumericsReport:
    a, b = two_models()
    return popart.NumericsReport(a, b, a, b)


def named(name: str) -> popart.Builder:
    builder = popart.Builder()
    builder.addInputTensor("FLOAT", [2], name)
    return builder


def branching(shape: list[int]) -> None:
    """An If whose condition has a shape."""
    builder = popart.Builder()
    condition, x = builder.addInputTensor("BOOL", shape), builder.addInputTensor("FLOAT", [3], "x")
    branches = [builder.createSubgraphBuilder() for _ in range(2)]
    for branch in branches:
        branch.addOutputTensor(branch.aiOnnx.neg([x]))
    (y,) = builder.aiOnnx.logical_if([condition], 1, *branches)
    popart.InferenceSession(builder.getModelProto(), flow(1, {y: "All"}), nets.device())


def looping(shape: list[int]) -> None:
    """A Loop whose first condition has a shape."""
    builder = popart.Builder()
    condition, x = builder.addInputTensor("BOOL", shape), builder.addInputTensor("FLOAT", [3], "x")
    body = builder.createSubgraphBuilder()
    _, going, carried = (body.addUntypedInputTensor(name) for name in ("i", "going", "carried"))
    for output in (going, body.aiOnnx.neg([carried])):
        body.addOutputTensor(output)
    (y,) = builder.aiOnnx.loop([builder.aiOnnx.constant(np.array(3)), condition, x], 1, body)
    popart.InferenceSession(builder.getModelProto(), flow(1, {y: "All"}), nets.device())


def old_session(**given: Any) -> Any:
    return poponnx.Session(linear()[0], poponnx.DataFlow(1, 3, ["y"], poponnx.AnchorReturnType.ALL), **given)


WEIGHTS: dict[str, Row] = {
    "no weights IO": (lambda: ready().readWeights({"w": X}), TypeError, "PyWeightsIO|incompatible function arguments"),
    "other weights IO": (lambda: ready().readWeights(popart.IWeightsIO()), TypeError, "Expected a PyWeightsIO"),
    "not fetched": (lambda: ready().readWeights(popart.PyWeightsIO({"w": X.copy()})), RUN, "No data for weight 'w'"),
    "read-only array": (
        lambda: fetched().readWeights(popart.PyWeightsIO({"w": np.frombuffer(bytes(12), np.float32)})),
        RUN,
        "readWeights: the array for weight 'w' is read-only",
    ),
    "another type": (
        lambda: ready().writeWeights(popart.PyWeightsIO({"w": np.ones(3)})),
        RUN,
        r"writeWeights: tensor 'w' is float32\[3\], the data are float64\[3\]",
    ),
    "another shape": (
        lambda: ready().writeWeights(popart.PyWeightsIO({"w": np.ones(2, np.float32)})),
        RUN,
        r"the data are float32\[2\]",
    ),
    "unknown initializer": (
        lambda: ready().resetHostWeights(nets.model("g (float[2] x) => (float[2] y) { y = Add(x, q) }", q=X[:2])),
        RUN,
        "resetWeights, no tensor 'q' in tensors",
    ),
    "constant weights": (lambda: inference().resetHostWeights(linear()[0]), RUN, "when constantWeights is set"),
    "model to a folder": (lambda: ready().modelToHost("."), OLD, r"Failed to write the model to '\.'"),
    "no such weight": (lambda: numerics().report("q"), OLD, "No initializer 'q'; there are w"),
}
RUNS: dict[str, Row] = {
    "no step IO": (lambda: ready().run(), TypeError, r"^run\(\): incompatible function arguments"),
    "a dictionary": (
        lambda: ready().run({"x": X}),
        TypeError,
        "the step I/O is a PyStepIO, a PyStepIOCallback or a Stream, not dict",
    ),
    "a number for a name": (
        lambda: ready().run(popart.PyStepIO({}, {}), 5),
        TypeError,
        "debugName is a str, not int",
    ),
    "unknown handle": (
        lambda: ready().run("q", popart.PyStepIO({}, {})),
        OLD,
        r"\[Devicex::run\] Program q not found\.",
    ),
    "read-only anchor": (read_only, RUN, "The array for output tensor y is read-only"),
    "list for an array": (lambda: popart.PyStepIO({"x": [1.0]}, {}), TypeError, r"expected ndarray or .*got \[1.0\]"),
    "read-only buffer": (
        callbacks(lambda name: np.frombuffer(bytes(12), np.float32)),
        RUN,
        "returned a read-only buffer for tensor y",
    ),
    "no buffer": (callbacks(lambda name: None), RUN, "The output callback returned no buffer for tensor y"),
    "small buffer": (
        callbacks(lambda name: np.zeros(2, np.float32)),
        RUN,
        "returned a buffer of 8 bytes for tensor y; one result has 12",
    ),
    "busy device": (attach_twice, OLD, "Failed to (attach to|acquire) device"),
    "seed of 65 bits": (lambda: ready().setRandomSeed(2**64), TypeError, "takes a seed from 0 to 18446744073709551615"),
    "negative seed": (lambda: ready().setRandomSeed(-1), TypeError, "takes a seed from 0"),
    "unknown tensor": (lambda: ready().getInfo("q"), OLD, "No tensor named 'q' in this session; there are"),
    "IR as text": (lambda: ready()._serializeIr("json"), TypeError, "expected IrSerializationFormat"),
    "data stream": (lambda: ready().connectStreamToCallback("h", len, 0), OLD, "no device streams in this runtime"),
    "no optimizer": (lambda: ready().updateOptimizerFromHost(0.1), TypeError, "expected Optimizer, got 0.1"),
    "no optimizer, older": (lambda: ready().updateOptimizer(0.1), TypeError, "updateOptimizer takes an Optimizer"),
    "no program": (
        lambda: popart.InferenceSession.fromIr(ready().getIr(), nets.device()),
        TypeError,
        "fromIr takes the Ir of a PopXL program, got Ir",
    ),
}
FILES: dict[str, Row] = {
    "another file": (
        on_ipu(lambda s: s.loadExecutable(written("nonsense.popef", b"nonsense"))),
        OLD,
        "is no executable of this package",
    ),
    "another session": (on_ipu(exported_by_another), OLD, "was compiled for another model, options, device or version"),
    "nothing compiled": (on_ipu(lambda s: s.saveExecutable("x.popef")), RUN, "No compiled executable to save"),
    "variables on a model": (lambda: ready().saveVariables("x"), OLD, "Executables for device type ipu-model"),
    "dot checkpoint": (lambda: inference(dotChecks={"Middle"}), OLD, r"Unknown dot checkpoint\(s\) \['Middle'\]"),
}
DEVICES: dict[str, Row] = {
    "offline attach": (
        lambda: popart.DeviceManager().createOfflineIPUDevice({}).attach(),
        OLD,
        "Cannot attach to an offline-ipu device",
    ),
    "number as text": (
        lambda: popart.DeviceManager().createIpuModelDevice({"numIPUs": "many"}),
        OLD,
        "Device option numIPUs is a number, got 'many'",
    ),
    "no IPU": (
        lambda: popart.DeviceManager().createIpuModelDevice({"numIPUs": 0}),
        OLD,
        "numIPUs must be at least 1, got 0",
    ),
    "unknown chip": (
        lambda: popart.DeviceManager().createOfflineIPUDevice({"ipuVersion": "ipu9"}),
        OLD,
        "Unknown ipuVersion 'ipu9'; there are ipu1",
    ),
    "options in a list": (
        lambda: popart.DeviceManager().createIpuModelDevice([1]),
        TypeError,
        r"expected a dict, got \[1\]",
    ),
    "offline from a CPU": (
        lambda: popart.DeviceManager().createOfflineIpuFromDeviceInfo(popart.DeviceManager().createCpuDevice()),
        OLD,
        "Cannot create an offline-ipu from a device of type cpu",
    ),
    "sync pattern": (lambda: popart.syncPatternFromString("q"), OLD, "Unknown syncPattern setting: q"),
    "no batch": (lambda: flow(0, {"y": "All"}), OLD, "'Batches per step' must be greater than zero"),
    "no anchor of a flow": (lambda: flow(1, {"y": "All"}).art("z"), OLD, "Tensor z is not an anchor"),
}
CONSTRUCTORS: dict[str, Row] = {
    "no text": (
        lambda: named("a\ud800").getModelProto(),
        OLD,
        r"The model can't be written: '.*a\\ud800' is no text",
    ),
    "no replica": (
        lambda: inference(enableReplicatedGraphs=True, replicatedGraphCount=0),
        OLD,
        "replicatedGraphCount must be at least 1, got 0",
    ),
    "too many batches": (
        lambda: popart.InferenceSession(linear()[0], flow(2**31, {"y": "All"}), nets.device()),
        OLD,
        "A step of 2147483648 batches of 1 micro-batches is longer than a program counts: at most 2147483647",
    ),
    "condition of If": (lambda: branching([2]), OLD, r"The condition of an If has one element, got shape \[2\]"),
    "condition of Loop": (lambda: looping([0]), OLD, r"The condition of a Loop has one element, got shape \[0\]"),
    "scaled Adam": (scaled_adam, OLD, "scaledOptimizerState and automaticLossScaling are not compatible"),
    "patterns": (
        lambda: popart.InferenceSession(linear()[0], flow(1, {"y": "All"}), nets.device(), patterns=["InPlace"]),
        TypeError,
        "patterns must be a Patterns, got list",
    ),
    "pattern switch": (lambda: setattr(popart.Patterns(), "InPlace", 1), TypeError, "expected a bool, got 1"),
    "unknown pattern": (lambda: popart.Patterns().isPatternEnabled("Q"), OLD, "Q"),
    "unknown option": (lambda: nets.make_options(acumulationFactor=1), AttributeError, "mean 'accumulationFactor'"),
    "type of an option": (
        lambda: nets.make_options(accumulationFactor="many"),
        TypeError,
        "SessionOptions.accumulationFactor: expected an int, got 'many'",
    ),
    "refused option": (lambda: nets.make_options(updatableBuffers=["b"]), AttributeError, "use updatableNamedBuffers"),
    "no losses": (
        lambda: popart.TrainingSession(linear()[0], flow(1, {"loss": "All"}), [], sgd(), nets.device()),
        OLD,
        "There is no loss: pass at least one",
    ),
    "losses of text": (
        lambda: popart.TrainingSession(linear()[0], flow(1, {"y": "All"}), ["y"], sgd(), nets.device()),
        TypeError,
        "losses holds L1Loss, NllLoss and IdentityLoss objects, got str",
    ),
    "old training": (lambda: old_session().train(OldStepIO({}, {})), OLD, "Training needs losses and an optimizer"),
    "small array of old": (
        lambda: old_session().infer(OldStepIO({"x": X}, {"y": np.zeros(2, np.float32)})),
        ValueError,
        "The array for 'y' has 2 elements, the step returns 3",
    ),
    "old operator": (lambda: poponnx.Builder().flatten_all, AttributeError, "no attribute or operator 'flatten_all'"),
    "module of another name": (lambda: dropin.module("popart.nowhere"), ImportError, "PopART has no module"),
}
TABLE = {**WEIGHTS, **RUNS, **FILES, **DEVICES, **CONSTRUCTORS}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_refused(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, kind, text = row
    with pytest.raises(kind, match=text):
        call()


MADE: dict[str, Callable[[], Any]] = {
    "a device by its name": lambda: popart.InferenceSession(linear()[0], flow(1, {"y": "All"}), "cpu"),
    "a data flow as a dict": lambda: popart.InferenceSession(linear()[0], {"y": "All"}, nets.device()),
    "options as a dict": lambda: popart.InferenceSession(
        linear()[0], flow(1, {"y": "All"}), nets.device(), userOptions={}
    ),
    "a loss by number": lambda: popart.TrainingSession(linear()[0], flow(1, {"y": "All"}), 3, sgd(), nets.device()),
    "a rate for an optimizer": lambda: popart.TrainingSession(
        linear()[0], flow(1, {"y": "All"}), "y", 0.1, nets.device()
    ),
    "weights in lists": lambda: popart.PyWeightsIO({"w": [1.0]}),
    "anchors in lists": lambda: popart.PyStepIO({}, {"y": [1.0]}),
    "a number for a model": lambda: popart.GraphTransformer(3),
}
CALLED: dict[str, Callable[[], Any]] = {
    "createCpuDevice": lambda: popart.DeviceManager().createCpuDevice({}),
    "createIpuModelDevice": lambda: popart.DeviceManager().createIpuModelDevice(),
    "createSimDevice": lambda: popart.DeviceManager().createSimDevice("numIPUs"),
    "createOfflineIpuFromDeviceInfo": lambda: popart.DeviceManager().createOfflineIpuFromDeviceInfo(2),
    "setRandomSeed": lambda: ready().setRandomSeed(-1),
    "run": lambda: ready().run({"x": X}),
    "updateOptimizerFromHost": lambda: ready().updateOptimizerFromHost(sgd),
    "_serializeIr": lambda: ready()._serializeIr("JSON"),
}


@pytest.mark.parametrize(
    ("method", "call"), [*(("__init__", c) for c in MADE.values()), *CALLED.items()], ids=[*MADE, *CALLED]
)
def test_type_errors_read_as_those_of_the_bindings(method: str, call: Callable[[], Any]) -> None:
    head = f"{method}(): incompatible function arguments. The following argument types are supported:\n    1. {method}("
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(head)
    assert "\n\nInvoked with: " in str(caught.value)


def test_a_refused_run_leaves_the_weights() -> None:
    session = ready()
    with pytest.raises(RUN):
        session.run(popart.PyStepIO({"x": np.ones(4, np.float32)}, session.initAnchorArrays()))
    session.weightsToHost()
    weights = np.zeros(3, np.float32)
    session.readWeights(popart.PyWeightsIO({"w": weights}))
    np.testing.assert_array_equal(weights, linear()[1])


def test_folder_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as root may write anywhere
    with pytest.raises(OSError, match="is not writable"):
        makedirsAndCheckWritable(str(tmp_path / "x"))
