"""Combinations of options that contradict each other, the model or the device: pure functions that list all errors."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...enums import (
    AccumulateOuterFragmentSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    DeviceType,
    ExchangeStrategy,
    MergeVarUpdateType,
    RecomputationType,
    VirtualGraphMode,
)
from ...errors import noted, popart_exception
from ...logs import module_logger
from ...model.number_text import number_text
from ...model.op_names import listed
from ...popdist.options import unlike_the_job
from ..options.engine_options import without_effect
from ..options.rows import rows
from ..options.session_options import AutomaticLossScalingSettings, SessionOptions, local_replicas
from .placement import (
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
_TIE_BREAKERS = ("fifo", "greedy", "random")
_BY_NAME = "GradientsOfUserSpecifiedTensors"
_LEAST_IO_TILES = 32
_EVERY_N = "AnchorReturnType::EVERYN is not valid for pipelined models"
_EVERY_N_EXPLICIT = "[Explicit Pipeline] Cannot execute when an anchor has AnchorReturnType 'EveryN'"


@dataclass(frozen=True, slots=True)
class OptionFacts:
    """Facts of the session, other than its options, that the checks depend on."""

    training: bool
    device: DeviceType = DeviceType.Cpu
    ipus: int = 1
    tiles: int = 1  # of one IPU
    batches_per_step: int = 1  # from the data flow
    ops: Sequence[PlacedOp] = ()  # operators of the forward graph
    user_recompute: bool = False  # whether the model carries recompute annotations
    clips_gradients: bool = False  # whether the optimizer clips
    const_loss_scale: bool = True  # whether the optimizer's loss scale is constant
    exchange: Collection[ExchangeStrategy] = ()  # strategies of all inputs and anchors
    every_n: bool = False  # whether an anchor returns every n-th result
    op_types: Collection[str] = field(default_factory=frozenset[str])  # operator types of the model
    variables: Collection[str] = field(default_factory=frozenset[str])  # names of the initializers
    streams: Collection[str] = ()  # names of the inputs that are fed
    anchors: Mapping[str, str] = field(default_factory=dict[str, str])  # kind of each anchor's return type

    def ipus_per_replica(self, options: SessionOptions) -> int:
        """IPUs that one replica has."""
        return max(self.ipus // max(local_replicas(options), 1), 1)


def check_options(options: SessionOptions, facts: OptionFacts) -> list[str]:
    """All contradictions that PopART reports when a session is made, in the order of its steps."""
    ipus = facts.ipus_per_replica(options)
    return [
        *_accumulation(options, facts),
        *_alias_and_loops(options),
        *_overlap(options, facts),
        *check_placement(options, facts.ops, ipus),
        *_phases(options),
        *_pipelining(options, facts),
        *_main_loops(options, facts),
        *_recomputation(options, facts),
        *_loss_scaling(options, facts),
        *_operator_options(options, facts),
        *_values(options, facts),
    ]


def check_device_options(options: SessionOptions, facts: OptionFacts) -> list[str]:
    """All contradictions that PopART reports in `prepareDevice`."""
    return [
        *_for_device(options, facts),
        *_io_tiles(options, facts),
        *_processes(options, facts),
        *check_device_placement(options, facts.ipus),
    ]


def _for_device(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    if options.replicatedGraphCount > 1 and not options.enableReplicatedGraphs:
        yield (
            "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable replication, or set the "
            "replicated graph count to 1"
        )
    if facts.every_n and options.enablePipelining and not explicit_pipelining(options):
        yield _EVERY_N
    missing = sorted(set(options.updatableNamedBuffers) - set(facts.variables))
    if missing:
        yield f"updatableNamedBuffers names {missing}, which are no weights of the model"
    threshold = options.automaticLossScalingSettings.thresholdUpperCountProportion
    if options.automaticLossScalingSettings.enabled and not 0 <= threshold <= 1:
        yield (
            "Out of range value for 'thresholdUpperCountProportion'. The current value is "
            f"{number_text(threshold)}, but it should be in the range [0, 1]."
        )
    if options.opxModifyChecking and options.enableReplicatedGraphs and options.replicatedGraphCount > 1:
        yield (
            "Can not do opx modify checking when using replicated graphs. Set SessionOptions::opxModifyChecking to "
            "false."
        )
    for key in options.gclOptions:
        if key not in GCL_KEYS:
            yield f"'{key}' is not a valid gcl option. Valid options are {listed(sorted(GCL_KEYS))}"


def _io_tiles(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    tiles = int(options.numIOTiles)
    if tiles and (tiles % 2 or tiles < _LEAST_IO_TILES):
        yield (
            f"{tiles} is an invalid number of IO tiles. Number of IO tiles must be an even number and >= "
            f"{_LEAST_IO_TILES}."
        )
    elif tiles and tiles >= facts.tiles:
        yield f"Tiles per IPU {facts.tiles} should exceed number of IO tiles {tiles}."


def _processes(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    """Whether there are processes enough for the global replicas; a device that only compiles needs none."""
    wrong = "" if facts.device is DeviceType.OfflineIpu else unlike_the_job(options)
    if wrong:
        yield wrong


def raise_all(errors: Iterable[str]) -> None:
    """Raise the first error, with the others as notes; nothing happens if there is none."""
    found = list(errors)
    if found:
        raise noted(popart_exception(found[0]), *found[1:])


_LAYERS = "POPART_POPLINER_OUTLINER_REGEX"


def announce(options: SessionOptions, facts: OptionFacts) -> None:
    """Log what was set but has no effect here, and what needs an IPU-like device."""
    log = module_logger("session")
    for name in options.changed():
        row = rows(type(options))[name]
        if row.treatment == "accepted":
            log.info("Session option %s has no effect here: %s", name, row.meaning)
    for text in without_effect(options):
        log.warning(text)
    if os.environ.get(_LAYERS):
        log.info("%s has no effect here: nothing is outlined by layers", _LAYERS)
    if facts.device not in IPU_LIKE:
        if options.enableStochasticRounding:
            log.warning("Stochastic rounding cannot be enabled for non IPU devices")
        if options.enableFloatingPointChecks:
            log.warning("Floating point checks cannot be enabled for non IPU devices")


def _accumulation(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    if options.enableGradientAccumulation and not facts.training:
        yield "Gradient Accumulation only available when training."
    if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
        yield (
            "enableGradientAccumulation is false, but accumulationFactor > 1. Either enable gradient accumulation, or "
            "set the accumulation factor to 1"
        )
    if options.accumulationFactor < 1:
        yield f"accumulationFactor must be at least 1, got {options.accumulationFactor}."


def check_distribution(options: SessionOptions) -> Iterator[str]:
    """Contradictions of the replication options, checked before groups of replicas are formed."""
    if options.replicatedGraphCount < 1:
        yield f"replicatedGraphCount must be at least 1, got {options.replicatedGraphCount}."
        return
    if not options.enableDistributedReplicatedGraphs:
        return
    factor, offset, local = options.globalReplicationFactor, options.globalReplicaOffset, options.replicatedGraphCount
    if factor < 1:
        yield f"Invalid globalReplicationFactor value: {factor}, must be greater or equal than 1"
    if offset < 0:
        yield f"Invalid globalReplicaOffset value: {offset}, must be greater or equal than 0"
    if offset > factor:
        yield f"Global replica offset: {offset}, is larger than global replication factor: {factor}"
    if options.enableReplicatedGraphs and local == 1:
        yield "Local replicated graphs enabled but replication factor is 1"
    if options.enableReplicatedGraphs and local > factor:
        yield f"Invalid local replication factor: {local}, larger than global replication factor: {factor}"


def _alias_and_loops(options: SessionOptions) -> Iterator[str]:
    if options.aliasZeroCopy and options.enablePipelining and not explicit_pipelining(options):
        yield "Alias zero copy is not supported with implicit pipelining."
    if options.aliasZeroCopy and not options.explicitRecomputation:
        yield "Alias zero copy is currently not supported with implicit recomputation."
    needed = ("useHostCopyOps", "explicitRecomputation") if explicit_pipelining(options) else ()
    for name in needed:
        if not getattr(options, name):
            yield f"SessionOption '{name}' must be true."
    if options.enableExplicitMainLoops and not options.useHostCopyOps:
        yield "enableExplicitMainLoops requires useHostCopyOps."
    settings = options.batchSerializationSettings
    if settings.factor < 0:
        yield f"Invalid batch serialization factor {settings.factor}: it is 0 or 1 (off), or larger."
    loop = settings.method is BatchSerializationMethod.Loop
    if settings.factor > 1 and loop and settings.transformContext is not BatchSerializationTransformContext.Bwd:
        yield (
            "Loop batch serialization is only supported in BatchSerializationTransformContext::Bwd due to LoopGradOp "
            "missing."
        )


def _overlap(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    if ExchangeStrategy.OverlapStep in facts.exchange:
        yield "ExchangeStrategy::OverlapStep is not yet supported."
    overlapped = {ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops} & set(facts.exchange)
    ready = options.useHostCopyOps and options.enableExplicitMainLoops
    if overlapped and not (ready and options.virtualGraphMode is not VirtualGraphMode.Off):
        yield (
            "ExchangeStrategy::OverlapInnerLoop, ExchangeStrategy::OverlapLoops require "
            "SessionOptions::useHostCopyOps, SessionOptions::enableExplicitMainLoops, VirtualGraphMode::(Manual, "
            "Auto, ExecutionPhases) to be enabled."
        )


def _phases(options: SessionOptions) -> Iterator[str]:
    phases, mode = options.executionPhaseSettings.phases, options.virtualGraphMode
    phased = mode is VirtualGraphMode.ExecutionPhases
    if phases > 1 and not phased:
        yield "> 1 execution phases requires VirtualGraphMode::ExecutionPhases"
    if phases <= 1 and phased:
        module_logger("session").warning("VirtualGraphMode::ExecutionPhases with %d phase(s) has no effect", phases)


def _pipelining(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    yield from _forward_only_program(options)
    if not options.enablePipelining:
        return
    if facts.every_n and explicit_pipelining(options):
        yield _EVERY_N_EXPLICIT
    ipus = facts.ipus_per_replica(options)
    if explicit_pipelining(options) or (ipus > 1 and options.virtualGraphMode is not VirtualGraphMode.Off):
        yield from check_depth(options, facts.ops, facts.training, facts.batches_per_step)
    if facts.user_recompute and not explicit_pipelining(options):
        yield "When pipelining is enabled, user annotation for recomputation is not allowed"
    serial = options.accumulateOuterFragmentSettings.schedule is AccumulateOuterFragmentSchedule.Serial
    if facts.clips_gradients and serial:
        yield (
            "Incompatible accumulateOuterFragmentSchedule used with gradient clipping, "
            "SessionOptions::accumulateOuterFragmentSettings.schedule can not be set to "
            "AccumulateOuterFragmentSchedule::Serial"
        )


def _main_loops(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    for name, kind in facts.anchors.items() if options.enableExplicitMainLoops else ():
        if kind not in ("All", "Sum", "Final"):
            yield (
                f'[MainLoops] AnchorReturnType::{kind} for Tensor "{name}" is unsupported when explicit main loops are '
                "enabled. Supported anchor return types are AnchorReturnTypeId::All and AnchorReturnTypeId::Sum."
            )


def _forward_only_program(options: SessionOptions) -> Iterator[str]:
    if not options.createImplicitPipeliningFwdOnlyProgram:
        return
    start = "Implicit pipelining forward-only program is not supported"
    if explicit_pipelining(options):
        yield f"{start} with explicit pipelining."
    elif not options.enablePipelining:
        yield f"{start} without implicit pipelining."
    elif not options.enableGradientAccumulation:
        yield f"{start} without gradient accumulation."


def _recomputation(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    automatic = options.autoRecomputation is not RecomputationType.NoRecompute
    if automatic and facts.user_recompute and not options.enablePipelining:
        yield "A mixture of auto and manual recomputation is not supported"


def _loss_scaling(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    settings = options.automaticLossScalingSettings
    if not settings.enabled:
        return
    start = "[AutomaticLossScale transform] "
    if not facts.training:
        yield f"{start}Only compatible when doing training"
        return
    if facts.const_loss_scale:
        yield f"{start}The optimizer must have non-const loss scaling"
    if options.enablePipelining and not options.enableGradientAccumulation:
        yield (
            f"{start}Automatic loss scaling is not currently supported when the 'enablePipelining' SessionOption is "
            "set to 'true', but the 'enableGradientAccumulation' SessionOption is set to 'false'"
        )
    if not 0 <= settings.binEdgeLocation <= 1:
        yield (
            f"{start}Out of range value for 'binEdgeLocation'. The current value is "
            f"{number_text(settings.binEdgeLocation)}, but it should be in the range [0, 1]."
        )
    if settings.updatePeriod < 1:
        yield f"{start}'updatePeriod' must be greater than 0, got {settings.updatePeriod}."
    yield from _tracked(settings, start)


def _tracked(settings: AutomaticLossScalingSettings, start: str) -> Iterator[str]:
    by_name = settings.gradientTensorTrackingMethod.name == _BY_NAME
    method = f"'GradientTensorTrackingMethod::{_BY_NAME}'"
    if settings.toTrackTensors is not None and not settings.toTrackTensors:
        yield (
            "[PreAutomaticLossScale] An empty list was set as the value of 'toTrackTensors'. To disable tensor "
            "tracking, please set 'automaticLossScalingSettings.enabled = False'. To track the default tensors, "
            "please leave 'automaticLossScalingSettings.toTrackTensors' unset."
        )
    elif settings.toTrackTensors is not None and not by_name:
        yield f"{start}toTrackTensors has been set, but gradientTensorTrackingMethod has not been set to {method}."
    elif by_name and settings.toTrackTensors is None:
        yield f"{start}gradientTensorTrackingMethod set to {method} but 'toTrackTensors' has not been set"


def _operator_options(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    if "MatMul" in facts.op_types and options.partialsTypeMatMuls.lower() not in _PARTIALS:
        yield (
            f"Unable to get option 'partialsTypeMatMul' from string '{options.partialsTypeMatMuls}'. Possible values "
            "are 'float' and 'half' in any letter case."
        )
    mode = options.lstmOptions.get("recomputationMode", "none")
    if "LSTM" in facts.op_types and mode not in _RECOMPUTATION_MODES:
        yield f"Unrecognised lstm recomputation mode '{mode}'"
    unknown_transforms = [
        name for names in options.experimentalSettings.customTransformApplierSettings.values() for name in names
    ]
    if unknown_transforms:
        yield f"No custom transforms {unknown_transforms} are registered."
    if options.kahnTieBreaker.lower() not in _TIE_BREAKERS:
        yield f'Unrecognised KahnTieBreaker, {options.kahnTieBreaker}. Should be one of "fifo", "greedy", and "random".'
    if facts.training:
        yield from _merging(options)


def _merging(options: SessionOptions) -> Iterator[str]:
    """Limits of merged weight updates, which only two kinds of merging have."""
    threshold, peak = options.mergeVarUpdateMemThreshold, options.looseThresholdAtPeak
    loose = options.mergeVarUpdate is MergeVarUpdateType.AutoLoose
    if threshold < 0 and (loose or options.mergeVarUpdate is MergeVarUpdateType.AutoTight):
        yield (
            f"Negative memory {threshold} threshold detected in MergeAuto. The option mergeVarUpdateMemThreshold "
            "must be positive. "
        )
    elif peak < 0 and loose:
        yield (
            f"Negative memory {peak} threshold detected in MergeLoose. The option looseThresholdAtPeak must be "
            "non-negative. "
        )


def _values(options: SessionOptions, facts: OptionFacts) -> Iterator[str]:
    if options.virtualGraphMode is VirtualGraphMode.Auto:
        yield from check_split_ratios(options, facts.ipus_per_replica(options))
    depths = dict.fromkeys(facts.streams, options.defaultBufferingDepth)
    for name, depth in {**depths, **options.bufferingDepthMap}.items():
        if depth < 1:
            yield f"Unable to support a buffering depth of {depth} for tensor {name} (minimum buffering depth is 1)"
        elif depth > 1 and options.rearrangeStreamsOnHost:
            yield (
                f"Unable to support a buffering depth >1 for tensor {name} because the stream is set to rearrange on "
                "the host (and PopART allows streams that are rearranged on the host to overlap in memory, making this "
                "unsafe)"
            )
