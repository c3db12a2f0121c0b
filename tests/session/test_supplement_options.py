"""Whole texts of what a session refuses in options, placement and anchors (supplement, sections 4.1 to 4.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax as popart

pytestmark = pytest.mark.usefixtures("popart_names")
All = popart.AnchorReturnType("All")
VG, Recompute, Exchange = popart.VirtualGraphMode, popart.RecomputationType, popart.ExchangeStrategy
Loop, Fwd = popart.BatchSerializationMethod.Loop, popart.BatchSerializationTransformContext.Fwd
ByName = popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
VARIABLE_SCALE = {"defaultLearningRate": (0.1, False), "lossScaling": (2, False)}
CLIPPING = popart.SGD({}, [popart.ClipNormSettings(["w"], 1.0)])


def set_all(options: popart.SessionOptions, values: dict[str, Any]) -> popart.SessionOptions:
    """Set options, nested ones by dotted names."""
    for name, value in values.items():
        *path, last = name.split(".")
        group = options
        for part in path:
            group = getattr(group, part)
        setattr(group, last, value)
    return options


def model(place: Callable[[popart.Builder, list[str]], Any] | None = None) -> tuple[popart.Builder, str]:
    """Two matmuls and a loss; `place` annotates their outputs."""
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2, 2], "x")
    outs = [x]
    for name in ("w", "v"):
        w = b.addInitializedInputTensor(np.ones((2, 2), np.float32), name)
        outs.append(b.aiOnnx.matmul([outs[-1], w]))
    outs.append(b.aiGraphcore.identityloss([outs[-1]]))
    if place is not None:
        place(b, outs[1:])
    return b, outs[-1]


def train(place: Any = None, ipus: int = 1, optimizer: Any = None, prepare: bool = False, art: Any = All,
          more: tuple[str, ...] = (), steps: int = 1, **values: Any) -> None:  # fmt: skip
    b, loss = model(place)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
    anchors: dict[str, Any] = dict.fromkeys((loss, *more), art)
    flow = popart.DataFlow(steps, anchors)
    options = set_all(popart.SessionOptions(), {k.replace("__", "."): v for k, v in values.items()})
    optimizer = optimizer or popart.SGD(VARIABLE_SCALE)
    session = popart.TrainingSession(b.getModelProto(), flow, loss, optimizer, device, userOptions=options)
    if prepare:
        session.prepareDevice()


def infer(**values: Any) -> None:
    b, loss = model()
    options = set_all(popart.SessionOptions(), values)
    device = popart.DeviceManager().createCpuDevice()
    popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {loss: All}), device, userOptions=options)


def graphs(*numbers: int | None) -> Callable[..., None]:
    def place(b: popart.Builder, outs: list[str]) -> None:
        for out, number in zip(outs, numbers, strict=True):
            if number is not None:
                b.virtualGraph(out, number)

    return place


def stages(numbers: tuple[int, ...], marks: tuple[int | None, ...]) -> Callable[..., None]:
    def place(b: popart.Builder, outs: list[str]) -> None:
        graphs(*numbers)(b, outs)
        for out, mark in zip(outs, marks, strict=True):
            if mark is not None:
                b.pipelineStage(out, mark)

    return place


def phases(numbers: tuple[int, ...]) -> Callable[..., None]:
    def place(b: popart.Builder, outs: list[str]) -> None:
        for out, number in zip(outs, numbers, strict=True):
            b.executionPhase(out, number)

    return place


def reads_twice(b: popart.Builder, outs: list[str]) -> None:
    graphs(0, 1, 1)(b, outs)
    b.virtualGraph(b.aiOnnx.matmul([outs[1], "w"]), 1)


def recomputed(b: popart.Builder, outs: list[str]) -> None:
    graphs(0, 1, 1)(b, outs)
    b.recomputeOutputInBackwardPass(outs[0])


PIPE = {"enablePipelining": True, "virtualGraphMode": VG.Manual, "ipus": 2, "steps": 9}
EXPLICIT = {**PIPE, "useHostCopyOps": True, "enableExplicitMainLoops": True, "explicitRecomputation": True}
PHASED = {"virtualGraphMode": VG.ExecutionPhases, "executionPhaseSettings__phases": 2, "ipus": 2}
ALS = {"automaticLossScalingSettings__enabled": True}
TRACK = "automaticLossScalingSettings__toTrackTensors"
METHOD = "automaticLossScalingSettings__gradientTensorTrackingMethod"
A, B, C = (
    "Op(ai.onnx.MatMul:9, inputs=[x, w], outputs=[MatMul:0])",
    "Op(ai.onnx.MatMul:9, inputs=[MatMul:0, v], outputs=[MatMul:0/1])",
    "Op(ai.graphcore.IdentityLoss:1, inputs=[MatMul:0/1], outputs=[IdentityLoss:0])",
)
NO_IDS = "Either all Ops must have their virtual graph ids set, or none must. Op count per virtual graph id"
SAME = "All ops with the same pipeline stage must also have the same virtual graph id"
UNSAFE = (
    "Unable to support a buffering depth >1 for tensor x because the stream is set to rearrange on the host (and "
    "PopART allows streams that are rearranged on the host to overlap in memory, making this unsafe)"
)
OVERLAP = (
    "ExchangeStrategy::OverlapInnerLoop, ExchangeStrategy::OverlapLoops require SessionOptions::useHostCopyOps, "
    "SessionOptions::enableExplicitMainLoops, VirtualGraphMode::(Manual, Auto, ExecutionPhases) to be enabled."
)
NO_GRADIENT = (
    "Anchor tensor `Gradient___x' not in Ir Tensors. \nInterestingly, `x' IS in tensors.\nNote that not all tensors "
    "can have their gradients anchored:\nif an activation tensor does not lead to the loss,\nits gradient is zero and "
    "never computed."
)
DISTRIBUTED = {"enableDistributedReplicatedGraphs": True}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    (f"{NO_IDS}\n  0 : 1\n  1 : 1\nOps with no virtual graph id :  \n  1 (ai.onnx.MatMul:9)",
     {"place": graphs(0, None, 1), "virtualGraphMode": VG.Manual, "ipus": 2}),
    (("SessionOptions flag virtualGraphMode is VirtualGraphMode::Manual, but no Ops have been annotated with virtual "
     "graph information. This is an inconsistent combination. "), {"virtualGraphMode": VG.Manual, "ipus": 2}),
    (f"Only some ops have had their pipeline stage set. Ops missing the pipeline stage:\n  {B}",
     {**PIPE, "place": stages((0, 0, 1), (0, None, 1))}),
    (f"Ops [{B} {C}] have the same pipeline stage 1, but different virtual graph ids [0 1]. {SAME}",
     {**PIPE, "place": stages((0, 0, 1), (0, 1, 1))}),
    ("The set of pipeline stages for all Ops contains 3 stages, but stage 1 is missing",
     {**PIPE, "place": stages((0, 0, 1), (0, 0, 2))}),
    ("Op has bad pipeline stage -1", {**PIPE, "place": stages((0, 0, 1), (-1, -1, 0))}),
    ((f"Tensor MatMul:0/1 is consumed in an earlier pipeline stage than it is produced\nProducer {B} has pipeline "
     f"stage 1\nConsumer {C} has pipeline stage 0"), {**PIPE, "place": stages((0, 1, 0), (0, 1, 0))}),
    ((f"Tensor MatMul:0/1 is consumed in an earlier pipeline stage than it is produced\nProducer {B} has pipeline "
     f"stage 1\nConsumer {C} has pipeline stage 0"), {**PIPE, "place": graphs(0, 1, 0)}),
    ("When pipelining is enabled, user annotation for recomputation is not allowed", {**PIPE, "place": recomputed}),
    (("Incompatible accumulateOuterFragmentSchedule used with gradient clipping, "
     "SessionOptions::accumulateOuterFragmentSettings.schedule can not be set to "
     "AccumulateOuterFragmentSchedule::Serial"), {**PIPE, "place": graphs(0, 1, 1), "optimizer": CLIPPING}),
    ("[Explicit Pipeline] Cannot execute when an anchor has AnchorReturnType 'EveryN'",
     {**EXPLICIT, "place": graphs(0, 1, 1), "art": popart.AnchorReturnType("EveryN", 3)}),
    ("AnchorReturnType::EVERYN is not valid for pipelined models",
     {**PIPE, "place": graphs(0, 1, 1), "art": popart.AnchorReturnType("EveryN", 3), "prepare": True}),
    (("[MainLoops] AnchorReturnType::EveryN for Tensor \"IdentityLoss:0\" is unsupported when explicit main loops are "
     "enabled. Supported anchor return types are AnchorReturnTypeId::All and AnchorReturnTypeId::Sum."),
     {"useHostCopyOps": True, "enableExplicitMainLoops": True, "art": popart.AnchorReturnType("EveryN", 2),
      "steps": 2}),
    ("SessionOption 'useHostCopyOps' must be true.",
     {"enablePipelining": True, "enableExplicitMainLoops": True, "virtualGraphMode": VG.Manual, "ipus": 2,
      "place": graphs(0, 1, 1), "steps": 9}),
    ("SessionOption 'explicitRecomputation' must be true.",
     {**EXPLICIT, "explicitRecomputation": False, "place": graphs(0, 1, 1)}),
    ("The size of virtualGraphSplitRatios must be equal to num_ipus.",
     {"virtualGraphMode": VG.Auto, "ipus": 2, "virtualGraphSplitRatios": [0.5]}),
    ("virtualGraphSplitRatios[i] must be in the rage (0, 1).",
     {"virtualGraphMode": VG.Auto, "ipus": 2, "virtualGraphSplitRatios": [0.0, 1.0]}),
    ("Sum of virtualGraphSplitRatios[i] must be equal to 1.0, but found 0.75.",
     {"virtualGraphMode": VG.Auto, "ipus": 2, "virtualGraphSplitRatios": [0.5, 0.25]}),
    ("For replicated graphs, the number of IPUs must be divisible by the replication factor.",
     {"enableReplicatedGraphs": True, "replicatedGraphCount": 3, "ipus": 2, "prepare": True}),
    (("enableGradientAccumulation is false, but accumulationFactor > 1. Either enable gradient accumulation, or set "
     "the accumulation factor to 1"), {"accumulationFactor": 2}),
    (("enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable replication, or set the replicated "
     "graph count to 1"), {"replicatedGraphCount": 2, "prepare": True}),
    (f"[StreamingMemory] Maximum phase is 1, but op {B} has phase 7.", {**PHASED, "place": phases((0, 7, 0))}),
    (f"[StreamingMemory] Op {A} inconsistent execution phase 0 and virtual graph ID 1",
     {**PHASED, "place": lambda b, outs: (phases((0, 1, 0))(b, outs), graphs(1, None, None)(b, outs))}),
    (("Can not copy variable tensor w between virtual graphs when pipelining. All pipeline stages using this tensor "
      "should be on the same graph."), {**PIPE, "place": reads_twice}),
    ("Batch axis: 2 is smaller than the batch serialization factor: 4 for tensor x",
     {"batchSerializationSettings__factor": 4}),
    ("> 1 execution phases requires VirtualGraphMode::ExecutionPhases", {"executionPhaseSettings__phases": 2}),
    ("Alias zero copy is not supported with implicit pipelining.",
     {**PIPE, "place": graphs(0, 1, 1), "aliasZeroCopy": True}),
    ("Alias zero copy is currently not supported with implicit recomputation.", {"aliasZeroCopy": True}),
    ("enableExplicitMainLoops requires useHostCopyOps.", {"enableExplicitMainLoops": True}),
    ("ExchangeStrategy::OverlapStep is not yet supported.",
     {"art": popart.AnchorReturnType("All", exchangeStrategy=Exchange.OverlapStep)}),
    (OVERLAP, {"art": popart.AnchorReturnType("All", exchangeStrategy=Exchange.OverlapInnerLoop)}),
    ("Loop batch serialization is only supported in BatchSerializationTransformContext::Bwd due to LoopGradOp missing.",
     {"batchSerializationSettings__factor": 2, "batchSerializationSettings__method": Loop,
      "batchSerializationSettings__transformContext": Fwd}),
    ("Invalid globalReplicationFactor value: 0, must be greater or equal than 1",
     {**DISTRIBUTED, "globalReplicationFactor": 0}),
    ("Invalid globalReplicaOffset value: -1, must be greater or equal than 0",
     {**DISTRIBUTED, "globalReplicationFactor": 2, "globalReplicaOffset": -1}),
    ("Global replica offset: 3, is larger than global replication factor: 2",
     {**DISTRIBUTED, "globalReplicationFactor": 2, "globalReplicaOffset": 3}),
    ("Local replicated graphs enabled but replication factor is 1",
     {**DISTRIBUTED, "globalReplicationFactor": 2, "enableReplicatedGraphs": True}),
    ("Invalid local replication factor: 4, larger than global replication factor: 2",
     {**DISTRIBUTED, "globalReplicationFactor": 2, "enableReplicatedGraphs": True, "replicatedGraphCount": 4}),
    ("Unable to support a buffering depth of 0 for tensor x (minimum buffering depth is 1)",
     {"bufferingDepthMap": {"x": 0}}),
    (UNSAFE, {"bufferingDepthMap": {"x": 2}, "rearrangeStreamsOnHost": True}),
    ("31 is an invalid number of IO tiles. Number of IO tiles must be an even number and >= 32.",
     {"numIOTiles": 31, "prepare": True}),
    ("Tiles per IPU 4 should exceed number of IO tiles 32.", {"numIOTiles": 32, "prepare": True}),
    ("Can not do opx modify checking when using replicated graphs. Set SessionOptions::opxModifyChecking to false.",
     {"opxModifyChecking": True, "enableReplicatedGraphs": True, "replicatedGraphCount": 2, "ipus": 2,
      "prepare": True}),
    ("A mixture of auto and manual recomputation is not supported",
     {"autoRecomputation": Recompute.Standard, "place": lambda b, outs: b.recomputeOutputInBackwardPass(outs[0])}),
    ('Unrecognised KahnTieBreaker, lifo. Should be one of "fifo", "greedy", and "random".', {"kahnTieBreaker": "lifo"}),
    (("Unable to get option 'partialsTypeMatMul' from string 'bad'. Possible values are 'float' and 'half' in any "
     "letter case."), {"partialsTypeMatMuls": "bad"}),
    ("Negative memory -2 threshold detected in MergeAuto. The option mergeVarUpdateMemThreshold must be positive. ",
     {"mergeVarUpdate": popart.MergeVarUpdateType.AutoTight, "mergeVarUpdateMemThreshold": -2}),
    ("Negative memory -2 threshold detected in MergeLoose. The option looseThresholdAtPeak must be non-negative. ",
     {"mergeVarUpdate": popart.MergeVarUpdateType.AutoLoose, "looseThresholdAtPeak": -2}),
    (("[AutomaticLossScale transform] Out of range value for 'binEdgeLocation'. The current value is 1.5, but it "
     "should be in the range [0, 1]."), {**ALS, "automaticLossScalingSettings__binEdgeLocation": 1.5}),
    (("[AutomaticLossScale transform] toTrackTensors has been set, but gradientTensorTrackingMethod has not been set "
     "to 'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors'."), {**ALS, TRACK: ["w"]}),
    (("[AutomaticLossScale transform] gradientTensorTrackingMethod set to "
     "'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors' but 'toTrackTensors' has not been set"),
     {**ALS, METHOD: ByName}),
    (("[PreAutomaticLossScale] An empty list was set as the value of 'toTrackTensors'. To disable tensor tracking, "
     "please set 'automaticLossScalingSettings.enabled = False'. To track the default tensors, please leave "
     "'automaticLossScalingSettings.toTrackTensors' unset."), {**ALS, METHOD: ByName, TRACK: []}),
    (("[PreAutomaticLossScale] Some of the tensors in the 'automaticLossScalingSettings.toTrackTensors' list do not "
     "exist in the model. Please look at the error log."), {**ALS, METHOD: ByName, TRACK: ["w", "nope"]}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given"), REFUSED, ids=[f"{i}-{t[:40]}" for i, (t, _) in enumerate(REFUSED)])
def test_training(text, given):
    with pytest.raises(popart.popart_exception) as caught:
        train(**given)
    assert caught.value.args[0] == text


def test_a_constant_may_be_read_on_several_graphs():
    b, out = model(reads_twice)
    options = set_all(popart.SessionOptions(), {"enablePipelining": True, "virtualGraphMode": VG.Manual})
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow = popart.DataFlow(4, {out: All})
    assert popart.InferenceSession(b.getModelProto(), flow, device, userOptions=options)


def test_a_pipeline_computes_a_tensor_again_in_one_later_stage():
    b = popart.Builder()
    w = b.addInitializedInputTensor(np.ones((4, 4), np.float32), "w")
    with b.virtualGraph(0), b.pipelineStage(0):
        x = b.aiGraphcore.nop([b.addInputTensor("FLOAT", [1, 4, 4], "in0")])
        y = b.aiOnnx.matmul([x, w])
    with b.virtualGraph(1), b.pipelineStage(1):
        y = b.aiOnnx.sqrt([y])
    with b.virtualGraph(0), b.pipelineStage(2):
        loss = b.aiGraphcore.identityloss([b.aiOnnx.add([x, y])])
    values = {"enablePipelining": True, "virtualGraphMode": VG.Manual, "autoRecomputation": Recompute.Pipeline}
    options = set_all(popart.SessionOptions(), values)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    with pytest.raises(popart.popart_exception) as caught:
        popart.TrainingSession(
            b.getModelProto(),
            popart.DataFlow(5, {loss: popart.AnchorReturnType("All")}),
            loss,
            popart.ConstSGD(0.1),
            device,
            userOptions=options,
        )
    assert caught.value.args[0] == (
        "SessionOptions::autoRecomputation == RecomputationType::Pipeline is not compatible with the partitioning of "
        "operations over pipeline stages. To-stash Tensor 'in0' must be restored for recomputation of a descendent "
        "that is not a direct consumer on more than 1 PipelineStage, but this is currently not supported"
    )


def test_an_input_that_does_not_reach_the_loss_has_no_gradient():
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2], "x")
    w = b.addInitializedInputTensor(np.ones(2, np.float32), "w")
    loss = b.aiGraphcore.identityloss([b.aiOnnx.add([w, b.aiGraphcore.detach([x])])])
    flow = popart.DataFlow(1, {"Gradient___x": All})
    with pytest.raises(popart.popart_exception) as caught:
        popart.TrainingSession(
            b.getModelProto(), flow, loss, popart.ConstSGD(0.1), popart.DeviceManager().createCpuDevice()
        )
    assert caught.value.args[0] == NO_GRADIENT


def test_unknown_anchors_are_told_with_all_tensors():
    with pytest.raises(popart.popart_exception) as caught:
        train(more=("nope",))
    start, _, names = caught.value.args[0].partition("The tensors are:\n")
    assert start == "Anchor tensor `nope' not in Ir Tensors. "
    assert {"x", "w", "MatMul:0"} <= set(names.strip("[]").split(" "))


def test_a_loss_of_several_elements():
    b, _ = model()
    with pytest.raises(popart.popart_exception) as caught:
        popart.TrainingSession(
            b.getModelProto(), popart.DataFlow(1, {}), "MatMul:0", popart.ConstSGD(0.1),
            popart.DeviceManager().createCpuDevice(),
        )  # fmt: skip
    assert caught.value.args[0] == "Loss tensor, 'MatMul:0', must be a scalar tensor"


@pytest.mark.parametrize("kind", ["Inference", "Training"])
def test_no_device(kind):
    proto = model()[0].getModelProto()
    more = ("IdentityLoss:0", popart.ConstSGD(0.1)) if kind == "Training" else ()
    with pytest.raises(popart.popart_exception) as caught:
        getattr(popart, f"{kind}Session")(proto, popart.DataFlow(1, {}), *more, None)
    assert caught.value.args[0] == f"Must pass a valid deviceInfo to {kind}Session::createFromOnnxModel"


def test_one_error_is_raised_and_the_others_are_notes():
    with pytest.raises(popart.popart_exception) as caught:
        train(accumulationFactor=2, aliasZeroCopy=True)
    assert caught.value.args[0].startswith("enableGradientAccumulation is false")
    assert "implicit recomputation" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (Exchange.OverlapStep, "ExchangeStrategy::OverlapStep is not yet supported."),
        (Exchange.OverlapLoops, OVERLAP),
        (Exchange.OverlapInnerLoop, OVERLAP),
    ],
)
def test_inputs_are_read_by_a_strategy_that_the_options_allow(strategy, text):
    b = popart.Builder()
    x = b.addInputTensor(popart.TensorInfo("FLOAT", [2]), popart.InputSettings(popart.TileSet.Compute, strategy))
    flow = popart.DataFlow(1, {b.aiOnnx.relu([x]): All})
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(b.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
    assert caught.value.args[0] == text


def test_accumulation_is_for_training():
    with pytest.raises(popart.popart_exception, match=r"^Gradient Accumulation only available when training\.$"):
        infer(enableGradientAccumulation=True, accumulationFactor=2)
