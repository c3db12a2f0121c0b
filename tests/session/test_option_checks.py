"""Combinations of options that PopART refuses (semantics 5.2): every rule fires, and its opposite does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from popart_jax import (
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    DeviceType,
    ExchangeStrategy,
    GradientTensorTrackingMethod,
    RecomputationType,
    SessionOptions,
    VirtualGraphMode,
    popart_exception,
)
from popart_jax.logs import module_logger
from popart_jax.session.checks.options import OptionFacts, announce, check_device_options, check_options, raise_all
from popart_jax.session.checks.placement import PlacedOp, pipeline_depth


def op(name: str, graph: int | None = None, stage: int | None = None, reads: str = "") -> PlacedOp:
    inputs = tuple(reads.split())
    return PlacedOp(
        f"Op(ai.onnx.Relu:6, inputs=[{', '.join(inputs)}], outputs=[{name}])", inputs, (name,), graph, stage
    )


CHAIN = (op("a", 0, 0, "x"), op("b", 1, 1, "a"))
TWO = {"ipus": 2, "tiles": 1472}


def options(**values) -> SessionOptions:
    made = SessionOptions()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def pipelined(**values) -> SessionOptions:
    return options(enablePipelining=True, virtualGraphMode=VirtualGraphMode.Manual, **values)


def with_group(change: Callable[[SessionOptions], None], **values) -> SessionOptions:
    made = options(**values)
    change(made)
    return made


def _loop(o):
    o.batchSerializationSettings.factor = 4
    o.batchSerializationSettings.method = BatchSerializationMethod.Loop


def _loop_backward(o):
    _loop(o)
    o.batchSerializationSettings.transformContext = BatchSerializationTransformContext.Bwd


def _scaling(o):
    o.automaticLossScalingSettings.enabled = True


def _scaling_edge(o):
    _scaling(o)
    o.automaticLossScalingSettings.binEdgeLocation = 1.5


def _scaling_names(o):
    _scaling(o)
    o.automaticLossScalingSettings.toTrackTensors = ["a"]


def _scaling_method(o):
    _scaling_names(o)
    o.automaticLossScalingSettings.gradientTensorTrackingMethod = (
        GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    )


def _phases(o):
    o.executionPhaseSettings.phases = 3


def _gcl(o):
    o.gclOptions["nonsense"] = "1"


MANUAL = VirtualGraphMode.Manual
EXPLICIT = {"useHostCopyOps": True, "enableExplicitMainLoops": True, "explicitRecomputation": True}
CASES = {
    "accumulation off": (
        options(accumulationFactor=2),
        {},
        "enableGradientAccumulation is false, but accumulationFactor > 1",
    ),
    "accumulation in inference": (
        options(enableGradientAccumulation=True),
        {"training": False},
        "Gradient Accumulation only available when training.",
    ),
    "manual without": (options(virtualGraphMode=MANUAL), {"ops": (op("a"), op("b"))}, "Manual"),
    "manual some": (
        options(virtualGraphMode=MANUAL),
        {"ops": (op("a", 0), op("b"))},
        "Either all Ops must have their virtual graph ids set, or none must",
    ),
    "pipelining one ipu": (pipelined(), {"ops": CHAIN}, r"Pipelining requires more than 1 IPU \(currently 1\)"),
    "pipelining off": (
        options(enablePipelining=True),
        {"ops": CHAIN, **TWO},
        r"to not be VirtualGraphMode::Off \(currently VirtualGraphMode::Off\)",
    ),
    "some stages": (
        pipelined(),
        {"ops": (op("a", 0, 0), op("b", 1)), **TWO},
        "Only some ops have had their pipeline stage set.",
    ),
    "one stage two ipus": (
        pipelined(),
        {"ops": (op("a", 0, 0), op("b", 1, 0)), **TWO},
        r"have the same pipeline stage 0, but different virtual graph ids \[0 1\]\. All ops",
    ),
    "back edge": (
        pipelined(),
        {"ops": (op("a", 1), op("b", 0, None, "a")), **TWO},
        "Tensor a is consumed in an earlier pipeline stage than it is produced",
    ),
    "depth of steps": (
        pipelined(),
        {"ops": CHAIN, "batches_per_step": 2, **TWO},
        r"^For pipelining, depth \(batchesPerStep\) must equal at least the number of pipeline stages \(3\)$",
    ),
    "depth of accumulation": (
        pipelined(enableGradientAccumulation=True, accumulationFactor=2),
        {"ops": CHAIN, **TWO},
        r"^For pipelining, depth \(gradient accumulation factor\) must equal at least the number of .* \(3\)$",
    ),
    "depth of inference": (pipelined(), {"ops": CHAIN, "training": False, **TWO}, r"stages \(2\)"),
    "user recompute": (
        pipelined(),
        {"ops": CHAIN, "batches_per_step": 3, "user_recompute": True, **TWO},
        "user annotation for recomputation is not allowed",
    ),
    "clipping": (pipelined(), {"ops": CHAIN, "batches_per_step": 3, "clips_gradients": True, **TWO}, "Serial"),
    "forward only explicit": (
        pipelined(createImplicitPipeliningFwdOnlyProgram=True, **EXPLICIT),
        {"ops": CHAIN, "batches_per_step": 9, **TWO},
        "Implicit pipelining forward-only program is not supported with explicit pipelining.",
    ),
    "forward only alone": (
        options(createImplicitPipeliningFwdOnlyProgram=True),
        {},
        "Implicit pipelining forward-only program is not supported without implicit pipelining.",
    ),
    "forward only accumulation": (
        pipelined(createImplicitPipeliningFwdOnlyProgram=True),
        {"ops": CHAIN, "batches_per_step": 9, **TWO},
        "forward-only program is not supported without gradient accumulation.",
    ),
    "every n": (
        pipelined(**EXPLICIT),
        {"ops": CHAIN, "batches_per_step": 9, "every_n": True, **TWO},
        r"^\[Explicit Pipeline\] Cannot execute when an anchor has AnchorReturnType 'EveryN'$",
    ),
    "scaling const": (
        with_group(_scaling),
        {},
        r"^\[AutomaticLossScale transform\] The optimizer must have non-const loss scaling$",
    ),
    "scaling inference": (
        with_group(_scaling),
        {"training": False},
        r"^\[AutomaticLossScale transform\] Only compatible when doing training$",
    ),
    "scaling pipelined": (
        with_group(_scaling, enablePipelining=True, virtualGraphMode=MANUAL),
        {"const_loss_scale": False, "ops": CHAIN, "batches_per_step": 9, **TWO},
        "Automatic loss scaling is not currently supported when the 'enablePipelining'",
    ),
    "scaling edge": (
        with_group(_scaling_edge),
        {"const_loss_scale": False},
        "Out of range value for 'binEdgeLocation'.",
    ),
    "scaling names": (with_group(_scaling_names), {"const_loss_scale": False}, "toTrackTensors"),
    "phases": (with_group(_phases), {}, "VirtualGraphMode::ExecutionPhases"),
    "main loops": (options(enableExplicitMainLoops=True), {}, "requires useHostCopyOps"),
    "zero copy": (options(aliasZeroCopy=True), {}, "not supported with implicit recomputation"),
    "recompute twice": (
        options(autoRecomputation=RecomputationType.Standard),
        {"user_recompute": True},
        "auto and manual",
    ),
    "serialised loop": (with_group(_loop), {}, "only supported in BatchSerializationTransformContext::Bwd"),
    "buffering": (options(defaultBufferingDepth=0), {"streams": ["a"]}, "buffering depth of 0 for tensor a"),
    "buffering rearranged": (
        options(bufferingDepthMap={"a": 2}, rearrangeStreamsOnHost=True),
        {},
        "rearrange on the host",
    ),
    "overlap step": (options(), {"exchange": {ExchangeStrategy.OverlapStep}}, "OverlapStep"),
    "overlap": (
        options(),
        {"exchange": {ExchangeStrategy.OverlapLoops}},
        "SessionOptions::useHostCopyOps, SessionOptions::enableExplicitMainLoops",
    ),
    "ratios length": (
        options(virtualGraphMode=VirtualGraphMode.Auto, virtualGraphSplitRatios=[0.5, 0.5]),
        {},
        "must be equal to num_ipus",
    ),
    "ratios range": (
        options(virtualGraphMode=VirtualGraphMode.Auto, virtualGraphSplitRatios=[1.5, -0.5]),
        TWO,
        r"must be in the rage \(0, 1\)",
    ),
    "ratios sum": (
        options(virtualGraphMode=VirtualGraphMode.Auto, virtualGraphSplitRatios=[0.5, 0.2]),
        TWO,
        "but found 0.7",
    ),
    "partials": (
        options(partialsTypeMatMuls="double"),
        {"op_types": {"MatMul"}},
        "partialsTypeMatMul' from string 'double'",
    ),
    "lstm": (
        with_group(lambda o: o.lstmOptions.update(recomputationMode="some")),
        {"op_types": {"LSTM"}},
        "Unrecognised lstm recomputation mode 'some'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    made, facts, text = CASES[case]
    errors = check_options(made, OptionFacts(**{"training": True, **facts}))
    assert errors
    with pytest.raises(popart_exception, match=text):
        raise_all(errors)


ACCEPTED = {
    "nothing": (options(), {}),
    "accumulation": (options(enableGradientAccumulation=True, accumulationFactor=2), {}),
    "manual": (options(virtualGraphMode=MANUAL), {"ops": CHAIN, **TWO}),
    "off ignores annotations": (options(), {"ops": (op("a", 3), op("b"))}),
    "pipelining": (pipelined(), {"ops": CHAIN, "batches_per_step": 3, **TWO}),
    "pipelining inference": (pipelined(), {"ops": CHAIN, "batches_per_step": 2, "training": False, **TWO}),
    "pipelining without stages": (
        pipelined(),
        {"ops": (op("a", 0), op("b", 1, None, "a")), "batches_per_step": 3, **TWO},
    ),
    "stages revisit": (
        pipelined(),
        {"ops": (op("a", 0, 0), op("b", 1, 1, "a"), op("c", 0, 2, "b")), "batches_per_step": 5, **TWO},
    ),
    "scaling": (with_group(_scaling), {"const_loss_scale": False}),
    "scaling by name": (with_group(_scaling_method), {"const_loss_scale": False}),
    "serialised loop": (with_group(_loop_backward), {}),
    "io tiles": (options(numIOTiles=32), {"tiles": 1472}),
    "overlap": (
        options(useHostCopyOps=True, enableExplicitMainLoops=True, virtualGraphMode=VirtualGraphMode.Auto),
        {"exchange": {ExchangeStrategy.OverlapLoops}},
    ),
    "ratios": (options(virtualGraphMode=VirtualGraphMode.Auto, virtualGraphSplitRatios=[0.3, 0.7]), TWO),
    "partials unused": (options(partialsTypeMatMuls="double"), {}),
    "recompute pipelined": (
        pipelined(autoRecomputation=RecomputationType.Pipeline),
        {"ops": CHAIN, "batches_per_step": 3, **TWO},
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case):
    made, facts = ACCEPTED[case]
    assert check_options(made, OptionFacts(**{"training": True, **facts})) == []


def test_the_first_contradiction_is_raised_and_the_others_are_notes():
    errors = check_options(options(accumulationFactor=2, aliasZeroCopy=True, kahnTieBreaker="x"), OptionFacts(True))
    assert len(errors) == 3
    with pytest.raises(popart_exception) as caught:
        raise_all(errors)
    assert [caught.value.args[0], *caught.value.__notes__] == errors


@pytest.mark.parametrize(
    ("made", "facts", "text"),
    [
        (options(replicatedGraphCount=2), {}, "enableReplicatedGraphs"),
        (options(), {"ipus": 2}, r"the replicated graph count \(1\) needs to be equal to the number of IPUs \(2\)"),
        (options(updatableNamedBuffers=["q"]), {}, "updatableNamedBuffers"),
        (with_group(_gcl), {}, r"^'nonsense' is not a valid gcl option. Valid options are \[\w+( \w+)+\]$"),
        (options(numIOTiles=33), {"tiles": 1472}, "^33 is an invalid number of IO tiles"),
        (options(numIOTiles=16), {"tiles": 1472}, "^16 is an invalid number of IO tiles"),
        (options(numIOTiles=1472), {"tiles": 1472}, "^Tiles per IPU 1472 should exceed number of IO tiles 1472.$"),
        (
            options(enableDistributedReplicatedGraphs=True, globalReplicationFactor=2),
            {},
            r"globalReplicationFactor is 2.* 1 \* 1\. Call jax.distributed.initialize in each of 2 processes",
        ),
        (
            pipelined(),
            {"ops": CHAIN, "ipus": 2, "every_n": True},
            "^AnchorReturnType::EVERYN is not valid for pipelined models$",
        ),
    ],
)
def test_refused_by_the_device(made, facts, text):
    with pytest.raises(popart_exception, match=text):
        raise_all(check_device_options(made, OptionFacts(True, **facts)))


@pytest.mark.parametrize(
    ("made", "facts"),
    [
        (options(enableReplicatedGraphs=True, replicatedGraphCount=2), {"ipus": 2}),
        (options(enableReplicatedGraphs=True, replicatedGraphCount=4), {"ipus": 1}),
        (options(virtualGraphMode=MANUAL), {"ops": CHAIN, "ipus": 2}),
        (options(enableDistributedReplicatedGraphs=True), {}),
        (
            options(enableDistributedReplicatedGraphs=True, globalReplicationFactor=2),
            {"device": DeviceType.OfflineIpu},
        ),
    ],
)
def test_accepted_by_the_device(made, facts):
    assert check_device_options(made, OptionFacts(True, **facts)) == []


@pytest.mark.parametrize(
    ("ops", "training", "extra", "depth"),
    [
        (CHAIN, True, False, 3),
        (CHAIN, False, False, 2),
        (CHAIN, True, True, 4),
        ((op("a", 0, 0), op("b", 0, 1), op("c", 1, 2)), True, False, 3),
        ((op("a", 0, 0), op("b", 1, 1), op("c", 0, 2)), True, False, 5),
    ],
)
def test_pipeline_depth_counts_backward_stages(ops, training, extra, depth):
    assert pipeline_depth(ops, training, extra) == depth


def test_what_needs_hardware_is_said(capsys):
    announce(options(enableStochasticRounding=True), OptionFacts(True, DeviceType.Cpu))
    assert "Stochastic rounding cannot be enabled for non IPU devices" in capsys.readouterr().err
    announce(options(enableStochasticRounding=True), OptionFacts(True, DeviceType.Ipu))
    assert capsys.readouterr().err == ""


def test_keys_of_options_that_nothing_reads_are_said(capsys):
    given = options(
        engineOptions={"popart_jax.trainabel": "w", "debug.retainDebugInformation": "true", "nonsense": "1"},
        convolutionOptions={"partialsTyp": "half", "partialsType": "half"},
        reportOptions={"showexecutionsteps": "true"},
    )
    announce(given, OptionFacts(True, DeviceType.Ipu))
    said = capsys.readouterr().err
    known = "the keys that have are popart_jax.autotune, popart_jax.strict, popart_jax.trainable, "
    assert f"engineOptions['popart_jax.trainabel'] has no effect here; {known}" in said
    for key in (
        "engineOptions['nonsense']",
        "convolutionOptions['partialsTyp']",
        "reportOptions['showexecutionsteps']",
    ):
        assert said.count(f"{key} has no effect here") == 1
    assert said.count("has no effect") == 4


def test_what_has_no_effect_is_said(caplog, monkeypatch):
    monkeypatch.setenv("POPART_POPLINER_OUTLINER_REGEX", "layer")
    with caplog.at_level("INFO", module_logger("session").name):
        announce(options(), OptionFacts(True, DeviceType.Ipu))
    assert "POPART_POPLINER_OUTLINER_REGEX has no effect here" in caplog.text
