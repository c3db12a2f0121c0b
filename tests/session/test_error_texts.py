"""What users read when something is wrong: class and text of errors, as PopART's own tests compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax as popart

from . import nets
from .nets import linear, sgd

Kind = popart.AnchorReturnType
KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown kind": (lambda: Kind("foo"), "Invalid anchor return type ID supplied: foo"),
    "no period": (lambda: Kind("EveryN"), "Must specify return period with option 'EVERYN'"),
    "period of All": (lambda: Kind("All", 2), "A return period should not be supplied for this anchor return type"),
    "period 0": (lambda: Kind("EveryN", 0), "Anchor return period must be greater than zero"),
}


@pytest.mark.parametrize("case", KINDS.values(), ids=KINDS)
def test_return_types(case):
    make, text = case
    with pytest.raises(popart.popart_exception) as caught:
        make()
    assert caught.value.args[0] == text


def _session(anchors: tuple[str, ...] = ("loss",), loss: str = "loss", batches: int = 1, **options: Any):
    proto, _ = linear()
    flow = nets.flow(batches, dict.fromkeys(anchors, "All"))
    return popart.TrainingSession(proto, flow, loss, sgd(), nets.device(), userOptions=nets.make_options(**options))


OVERLAP = popart.ExchangeStrategy.OverlapLoops
CONSTRUCTOR: dict[str, tuple[dict[str, Any], str]] = {
    "no such loss": ({"loss": "zz"}, "Could not find loss tensor 'zz'"),
    "loss of three": ({"loss": "y"}, "must be a scalar tensor"),
    "loss without op": ({"loss": "w"}, "does not have a producer Op"),
    "no such anchor": ({"anchors": ("zz",)}, "Anchor tensor `zz' not in Ir Tensors"),
    "factor alone": ({"accumulationFactor": 2}, "enableGradientAccumulation is false, but accumulationFactor > 1"),
    "pipeline on one IPU": (
        {"enablePipelining": True},
        ("Pipelining requires more than 1 IPU (currently 1) and the 'virtualGraphMode' session option to not be "
        "VirtualGraphMode::Off (currently VirtualGraphMode::Off)."),
    ),
    "forward program": (
        {"createImplicitPipeliningFwdOnlyProgram": True},
        "Implicit pipelining forward-only program is not supported without implicit pipelining.",
    ),
    "loops without host copies": ({"enableExplicitMainLoops": True}, "useHostCopyOps"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONSTRUCTOR.values(), ids=CONSTRUCTOR)
def test_constructor(case):
    arguments, text = case
    with pytest.raises(popart.popart_exception) as caught:
        _session(**arguments)
    assert text in caught.value.args[0]


@pytest.fixture(scope="module")
def ready():
    session = _session(batches=2)
    session.prepareDevice()
    session.weightsFromHost()
    return session


GOOD = np.ones((2, 3), np.float32)
OUT = np.zeros(2, np.float32)
STEPS: dict[str, tuple[dict, dict, type, str]] = {
    "few inputs": ({"x": GOOD[:1].copy()}, {"loss": OUT}, popart.popart_runtime_error,
                   "Unexpected number of input elements for Tensor x. Expected 6, but received 3."),
    "many outputs": ({"x": GOOD}, {"loss": np.zeros(3, np.float32)}, popart.popart_runtime_error,
                     "Unexpected number of output elements for Tensor loss"),
    "no input": ({}, {"loss": OUT}, popart.popart_runtime_error, "No tensor x provided in PyStepIO's inputs"),
    "no output": ({"x": GOOD}, {}, popart.popart_runtime_error, "No tensor loss provided in PyStepIO's outputs"),
    "double": ({"x": GOOD.astype(np.float64)}, {"loss": OUT}, popart.popart_runtime_error,
               "Type discrepancy for tensor x. User provided : "),
    "half": ({"x": GOOD.astype(np.float16)}, {"loss": OUT}, popart.popart_runtime_error,
             "Type discrepancy for tensor x. User provided : FLOAT16 and expected : FLOAT"),
    "no input of the model": ({"x": GOOD, "y": GOOD}, {"loss": OUT}, popart.popart_runtime_error,
                              ("The tensor 'y' has been provided as one of the inputs to the stepIO, but it is not "
                              "registered as one of the inputs to the model")),
    "no tensor": ({"x": GOOD, "zz": GOOD}, {"loss": OUT}, popart.popart_runtime_error, "there is no Tensor named zz"),
    "no anchor": ({"x": GOOD}, {"loss": OUT, "y": 2 * GOOD}, popart.popart_internal_exception, "Non-anchored Tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_step_io(ready, case):
    inputs, outputs, kind, text = case
    with pytest.raises(popart.popart_exception) as caught:
        ready.run(popart.PyStepIO(inputs, outputs))
    assert type(caught.value) is kind
    assert text in caught.value.args[0]


BEFORE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "run": (lambda s: s.run(popart.PyStepIO({}, {})), "Must call weightsFromHost before run"),
    "load": (
        lambda s: s.loadEngineAndConnectStreams(),
        "Trying to load an engine but no compiled engine. Did you forget to call prepareDevice()?",
    ),
    "weightsFromHost": (lambda s: s.weightsFromHost(), "Devicex::prepare() must be called before "),
    "weightsToHost": (lambda s: s.weightsToHost(), "Devicex::prepare() must be called before "),
    "modelToHost": (lambda s: s.modelToHost("never.onnx"), "Devicex::prepare() must be called before "),
    "summary": (lambda s: s.getSummaryReport(), "Session must have been prepared before a report can be fetched"),
    "graph": (lambda s: s.getSerializedGraph(), "Session must have been prepared before a report can be fetched"),
    "cycles": (lambda s: s.getCycleCount(), "Must call run before getCycleCount."),
    "state": (lambda s: s.getRNGState(), "enableLoadAndOffloadRNGState"),
}


@pytest.fixture(scope="module")
def fresh():
    return _session()


@pytest.mark.parametrize("case", BEFORE.values(), ids=BEFORE)
def test_before_prepare_device(fresh, case):
    call, text = case
    with pytest.raises(popart.popart_runtime_error) as caught:
        call(fresh)
    assert text in caught.value.args[0]


def test_arguments(ready):
    for arguments in ((), (3,), ("name",)):
        with pytest.raises(TypeError):
            ready.run(*arguments)
    with pytest.raises(popart.popart_exception, match="nowhere"):
        ready.run("nowhere", popart.PyStepIO({"x": GOOD}, {"loss": OUT}))
    with pytest.raises(TypeError):
        ready.updateOptimizerFromHost({"defaultLearningRate": (0.1, False)})
    with pytest.raises(popart.popart_exception, match="Problem with learning rates"):
        ready.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.1, False)}))


def test_trip_count_of_a_loop():
    builder = popart.Builder()
    onnx = builder.aiOnnxOpset11
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    trips, go = onnx.constant(np.asarray(2, np.float32)), onnx.constant(np.asarray(True))
    body = builder.createSubgraphBuilder()
    body.addInputTensor(popart.TensorInfo("INT64", []))
    keep, value = (body.addInputTensor(popart.TensorInfo(*kind)) for kind in (("BOOL", []), ("FLOAT", [2])))
    doubled = body.aiOnnxOpset11.add([value, value])
    for name in (keep, doubled):
        body.addOutputTensor(name)
    (out,) = onnx.loop([trips, go, x], 1, body)
    with pytest.raises(popart.popart_exception) as caught:
        nets.infer(builder.getModelProto(), {out: "All"})
    assert caught.value.args[0].splitlines()[0] == "[LoopOp] unsupported trip count data type float32"
