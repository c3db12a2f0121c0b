"""Combinations of options that contradict each other, the model or the device: pure functions that list all errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import jax

from ..enums import (
    AccumulateOuterFragmentSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    DeviceType,
    ExchangeStrategy,
    RecomputationType,
    VirtualGraphMode,
)
from ..errors import popart_exception
from ..logs import module_logger
from .option_rows import rows
from .options import SessionOptions, local_replicas
from .placement_checks import (
    PlacedOp,
    check_depth,
    check_device_placement,
    check_placement,
    check_split_ratios,
    explicit_pipelining,
)

IPU_LIKE = frozenset({DeviceType.Ipu, DeviceType.OfflineIpu})
GCL_KEYS = frozenset(
    {"useGclCollectives", "useSynclessCollectives", "maxBytesPerTile", "maxBroadcastSize", "method", "topology", "link"}
)
_RECOMPUTATION_MODES = ("none", "cellAndTanh", "full")
_PARTIALS = ("", "float", "half")
_LEAST_IO_TILES = 32
_EVERY_N = "AnchorReturnType::EVERYN is not valid for pipelined models"


@dataclass(frozen=True, slots=True)
class OptionFacts:
    """What the checks know of the session around the options.

    Attributes
    ----------
    training : bool
        Training or inference.
    device : DeviceType
        Kind of the device.
    ipus, tiles : int
        IPUs of the device, tiles of one IPU.
    batches_per_step : int
        From the data flow.
    ops : sequence of PlacedOp
        Operators of the forward graph.
    user_recompute : bool
        Whether the model carries recompute annotations.
    clips_gradients : bool
        Whether the optimizer clips.
    const_loss_scale : bool
        Whether the optimizer's loss scale is constant.
    exchange : collection of ExchangeStrategy
        Strategies of all inputs and anchors.
    every_n : bool
        Whether an anchor returns every n-th result.
    op_types : collection of str
        Operator types of the model.
    variables : collection of str
        Names of the initializers.
    """

    training: bool
    device: DeviceType = DeviceType.Cpu
    ipus: int = 1
    tiles: int = 1
    batches_per_step: int = 1
    ops: Sequence[PlacedOp] = ()
    user_recompute: bool = False
    clips_gradients: bool = False
    const_loss_scale: bool = True
    exchange: Collection[ExchangeStrategy] = ()
    every_n: bool = False
    op_types: Collection[str] = field(default_factory=frozenset)
    variables: Collection[str] = field(default_factory=frozenset)

    def ipus_per_replica(self, options: SessionOptions) -> int:
        """IPUs that one replica has."""
        return max(self.ipus // max(local_replicas(options), 1), 1)


def check_options(options: SessionOptions, facts: OptionFacts) -> list[str]:
    """All contradictions that PopART reports when a session is made, in the order of its steps."""
    ipus = facts.ipus_per_replica(options)
    return [
        *_accumulation(options, facts),
        *_distribution(options),
        *_alias_and_loops(options),
        *_overlap(options, facts),
        *check_placement(options, facts.ops, ipus),
        *_phases(options),
        *_pipelining(options, facts),
        *_recomputation(options, facts),
        *_loss_scaling(options, facts),
        *_operator_options(options, facts),
        *_values(options, facts),
    ]


def check_device_options(options: SessionOptions, facts: OptionFacts) -> list[str]:
    """All contradictions that PopART reports in `prepareDevice`."""
    errors = []
    if options.replicatedGraphCount > 1 and not options.enableReplicatedGraphs:
        errors.append(
            f"replicatedGraphCount is {options.replicatedGraphCount}, but enableReplicatedGraphs is false. Set it "
            f"to true."
        )
    if facts.every_n and options.enablePipelining and not explicit_pipelining(options):
        errors.append(_EVERY_N)
    missing = sorted(set(options.updatableNamedBuffers) - set(facts.variables))
    if missing:
        errors.append(f"updatableNamedBuffers names {missing}, which are no weights of the model")
    threshold = options.automaticLossScalingSettings.thresholdUpperCountProportion
    if options.automaticLossScalingSettings.enabled and not 0 <= threshold <= 1:
        errors.append("Out of range value for 'thresholdUpperCountProportion'.")
    return errors + _processes(options, facts) + check_device_placement(options, facts.ipus)


def _processes(options: SessionOptions, facts: OptionFacts) -> list[str]:
    """Whether there are processes enough for the global replicas; a device that only compiles needs none."""
    if not options.enableDistributedReplicatedGraphs or facts.device is DeviceType.OfflineIpu:
        return []
    factor, processes = options.globalReplicationFactor, jax.process_count()
    local = local_replicas(options)
    if local * processes == factor:
        return []
    return [
        (
            f"globalReplicationFactor is {factor}, but the processes of this job times the replicas of each are "
            f"{processes} * {local}. Call jax.distributed.initialize in each of {factor / local:g} processes before a "
            f"session is made."
        )
    ]


def raise_all(errors: Sequence[str]) -> None:
    """Raise one popart_exception with all errors; nothing happens if there is none."""
    if errors:
        raise popart_exception("\n".join(errors))


def announce(options: SessionOptions, facts: OptionFacts) -> None:
    """Log what was set but has no effect here, and what needs an IPU-like device."""
    log = module_logger("session")
    for name in options.changed():
        row = rows(type(options))[name]
        if row.treatment == "accepted":
            log.info("Session option %s has no effect here: %s", name, row.meaning)
    if facts.device not in IPU_LIKE:
        if options.enableStochasticRounding:
            log.warning("Stochastic rounding cannot be enabled for non IPU devices")
        if options.enableFloatingPointChecks:
            log.warning("Floating point checks cannot be enabled for non IPU devices")


def _accumulation(options: SessionOptions, facts: OptionFacts) -> list[str]:
    errors = []
    if options.enableGradientAccumulation and not facts.training:
        errors.append("Gradient Accumulation only available when training.")
    if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
        errors.append(
            f"enableGradientAccumulation is false, but accumulationFactor > 1. accumulationFactor was set to "
            f"{options.accumulationFactor}."
        )
    if options.accumulationFactor < 1:
        errors.append(f"accumulationFactor must be at least 1, got {options.accumulationFactor}.")
    return errors


def _distribution(options: SessionOptions) -> list[str]:
    if not options.enableDistributedReplicatedGraphs:
        return []
    factor, offset, local = options.globalReplicationFactor, options.globalReplicaOffset, options.replicatedGraphCount
    errors = []
    if factor < 1:
        errors.append(f"Invalid globalReplicationFactor value: {factor}. It must be at least 1.")
    if offset < 0:
        errors.append(f"Invalid globalReplicaOffset value: {offset}. It must not be negative.")
    if offset > factor:
        errors.append(
            f"Invalid globalReplicaOffset value: {offset}. It is larger than globalReplicationFactor {factor}."
        )
    if options.enableReplicatedGraphs and local == 1:
        errors.append("Local replication is enabled, but replicatedGraphCount is 1.")
    if options.enableReplicatedGraphs and local > factor:
        errors.append(f"replicatedGraphCount {local} is larger than globalReplicationFactor {factor}.")
    return errors


def _alias_and_loops(options: SessionOptions) -> list[str]:
    errors = []
    if options.enableExplicitMainLoops and not options.useHostCopyOps:
        errors.append("enableExplicitMainLoops requires useHostCopyOps.")
    if options.aliasZeroCopy and not options.explicitRecomputation:
        errors.append("aliasZeroCopy requires explicitRecomputation.")
    if options.aliasZeroCopy and options.enablePipelining and not explicit_pipelining(options):
        errors.append("aliasZeroCopy is not supported with implicit pipelining.")
    settings = options.batchSerializationSettings
    if settings.factor < 0:
        errors.append(f"Invalid batch serialization factor {settings.factor}: it is 0 or 1 (off), or larger.")
    loop = settings.method is BatchSerializationMethod.Loop
    if settings.factor > 1 and loop and settings.transformContext is not BatchSerializationTransformContext.Bwd:
        errors.append("BatchSerializationMethod::Loop requires BatchSerializationTransformContext::Bwd.")
    return errors


def _overlap(options: SessionOptions, facts: OptionFacts) -> list[str]:
    errors = []
    if ExchangeStrategy.OverlapStep in facts.exchange:
        errors.append("ExchangeStrategy::OverlapStep is not supported.")
    overlapped = {ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops} & set(facts.exchange)
    ready = options.useHostCopyOps and options.enableExplicitMainLoops
    if overlapped and not (ready and options.virtualGraphMode is not VirtualGraphMode.Off):
        names = ", ".join(sorted(f"ExchangeStrategy::{s.name}" for s in overlapped))
        errors.append(
            f"{names} requires useHostCopyOps, enableExplicitMainLoops and a virtualGraphMode other than "
            f"VirtualGraphMode::Off."
        )
    return errors


def _phases(options: SessionOptions) -> list[str]:
    phases, mode = options.executionPhaseSettings.phases, options.virtualGraphMode
    phased = mode is VirtualGraphMode.ExecutionPhases
    if phases > 1 and not phased:
        return [
            (
                f"> 1 execution phases ({phases}) requires VirtualGraphMode::ExecutionPhases, but it is "
                f"VirtualGraphMode::{mode.name}."
            )
        ]
    if phases <= 1 and phased:
        module_logger("session").warning("VirtualGraphMode::ExecutionPhases with %d phase(s) has no effect", phases)
    return []


def _pipelining(options: SessionOptions, facts: OptionFacts) -> list[str]:
    errors = _forward_only_program(options)
    if not options.enablePipelining:
        return errors
    if facts.every_n and explicit_pipelining(options):
        errors.append(_EVERY_N)
    ipus = facts.ipus_per_replica(options)
    if explicit_pipelining(options) or (ipus > 1 and options.virtualGraphMode is not VirtualGraphMode.Off):
        errors += check_depth(options, facts.ops, facts.training, facts.batches_per_step)
    if facts.user_recompute and not explicit_pipelining(options):
        errors.append("User recompute annotations are not supported with pipelining.")
    serial = options.accumulateOuterFragmentSettings.schedule is AccumulateOuterFragmentSchedule.Serial
    if facts.clips_gradients and serial:
        errors.append("AccumulateOuterFragmentSchedule::Serial is incompatible with gradient clipping when pipelining.")
    return errors


def _forward_only_program(options: SessionOptions) -> list[str]:
    if not options.createImplicitPipeliningFwdOnlyProgram:
        return []
    start = "Implicit pipelining forward-only program is not supported"
    if explicit_pipelining(options):
        return [f"{start} with explicit pipelining."]
    if not options.enablePipelining:
        return [f"{start} without implicit pipelining."]
    return [] if options.enableGradientAccumulation else [f"{start} without gradient accumulation."]


def _recomputation(options: SessionOptions, facts: OptionFacts) -> list[str]:
    automatic = options.autoRecomputation is not RecomputationType.NoRecompute
    if automatic and facts.user_recompute and not options.enablePipelining:
        return [
            "A mixture of auto and manual recomputaion is not supported: drop autoRecomputation or the annotations."
        ]
    return []


def _loss_scaling(options: SessionOptions, facts: OptionFacts) -> list[str]:
    settings = options.automaticLossScalingSettings
    if not settings.enabled:
        return []
    start = "[AutomaticLossScale transform] "
    if not facts.training:
        return [f"{start}Only compatible when doing training"]
    errors = []
    if facts.const_loss_scale:
        errors.append(f"{start}The optimizer must have non-const loss scaling")
    if options.enablePipelining and not options.enableGradientAccumulation:
        errors.append(
            f"{start}Automatic loss scaling is not currently supported when the 'enablePipelining' SessionOption is "
            f"set to "
            "'true', but the 'enableGradientAccumulation' SessionOption is set to 'false'"
        )
    if not 0 <= settings.binEdgeLocation <= 1:
        errors.append(f"{start}Out of range value for 'binEdgeLocation'.")
    if settings.updatePeriod < 1:
        errors.append(f"{start}'updatePeriod' must be greater than 0, got {settings.updatePeriod}.")
    by_name = settings.gradientTensorTrackingMethod.name == "GradientsOfUserSpecifiedTensors"
    if by_name != (settings.toTrackTensors is not None):
        errors.append(
            f"{start}'toTrackTensors' must be set exactly when 'gradientTensorTrackingMethod' is "
            "GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors."
        )
    return errors


def _operator_options(options: SessionOptions, facts: OptionFacts) -> list[str]:
    errors = []
    unknown = sorted(set(options.gclOptions) - GCL_KEYS)
    if unknown:
        errors.append(f"Unknown gclOptions {unknown}; known are {sorted(GCL_KEYS)}.")
    if "MatMul" in facts.op_types and options.partialsTypeMatMuls.lower() not in _PARTIALS:
        errors.append(f"Unsupported partialsTypeMatMuls '{options.partialsTypeMatMuls}'; it is float or half.")
    mode = options.lstmOptions.get("recomputationMode", "none")
    if "LSTM" in facts.op_types and mode not in _RECOMPUTATION_MODES:
        errors.append(
            f"Unrecognised lstmOptions recomputationMode '{mode}'; it is one of {', '.join(_RECOMPUTATION_MODES)}."
        )
    unknown_transforms = [
        name for names in options.experimentalSettings.customTransformApplierSettings.values() for name in names
    ]
    if unknown_transforms:
        errors.append(f"No custom transforms {unknown_transforms} are registered.")
    if options.opxModifyChecking and options.enableReplicatedGraphs and options.replicatedGraphCount > 1:
        errors.append("opxModifyChecking is not supported with replicated graphs.")
    return errors


def _values(options: SessionOptions, facts: OptionFacts) -> list[str]:
    errors = []
    if options.virtualGraphMode is VirtualGraphMode.Auto:
        errors += check_split_ratios(options, facts.ipus_per_replica(options))
    tiles = int(options.numIOTiles)
    if tiles and (tiles % 2 or tiles < _LEAST_IO_TILES or tiles >= facts.tiles):
        errors.append(
            f"numIOTiles must be even, at least {_LEAST_IO_TILES} and less than the {facts.tiles} tiles of an IPU, "
            f"got {tiles}."
        )
    depths = {"defaultBufferingDepth": options.defaultBufferingDepth, **options.bufferingDepthMap}
    for name, depth in depths.items():
        if depth < 1:
            errors.append(f"Buffering depth of {name} must be at least 1, got {depth}.")
        elif depth > 1 and options.rearrangeStreamsOnHost:
            errors.append(
                f"Buffering depth {depth} of {name} is not supported together with rearrangement on the host."
            )
    if options.replicatedGraphCount < 1:
        errors.append(f"replicatedGraphCount must be at least 1, got {options.replicatedGraphCount}.")
    return errors
