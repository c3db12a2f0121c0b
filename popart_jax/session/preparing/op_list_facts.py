"""Collects the facts from which `ir_view` makes PopART's op list of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

import numpy as np
import onnx_ir as ir

from ... import ir_view
from ...enums import (
    AdamMode,
    BatchSerializationTransformContext,
    GradientTensorTrackingMethod,
    MeanReductionStrategy,
    ReductionType,
    ReplicatedTensorSharding,
    TensorStorage,
    TileSet,
    WeightDecayMode,
)
from ...execution import Type
from ...model.attribute_names import EXECUTION_PHASE, PIPELINE_STAGE, VIRTUAL_GRAPH, input_metadata
from ...model.tensor_location import TensorLocation, TensorLocationSettings
from ...ops.replicas import groups_of
from ...optimizers import SGD, Adam, Adaptive, Optimizer, OptimizerValue
from ..options.groups import BatchSerializationSettings
from .described import Described


def op_list_facts(session: Described) -> ir_view.IrFacts:
    """Facts of a session, as the op list takes them."""
    request = session.request
    return ir_view.IrFacts(
        graph=session.graph,
        types={n: _onnx_type(t) for n, t in session.infos.items()},
        variables=frozenset(session.variables) - session.constants - session.state,
        anchors=frozenset(request.data_flow.anchors()),
        loss=request.loss,
        optimizer=None if request.optimizer is None else optimizer_facts(request.optimizer, session.trained),
        selection=request.patterns.selection,
        options=view_options(session),
    )


def _onnx_type(kind: Type) -> tuple[ir.DataType, tuple[int, ...]]:
    return ir.DataType.from_numpy(np.dtype(kind.dtype)), kind.shape


def optimizer_facts(optimizer: Optimizer, weights: Collection[str]) -> ir_view.OptimizerFacts:
    """Structure of an optimizer over the weights that are trained."""
    fields = list(type(optimizer)._defaults)
    nonconst = {f: _where(optimizer, f, weights, lambda v: not v.isConst()) for f in fields}
    decays = _where(optimizer, "weightDecay", weights, lambda v: not v.isConst() or v.val() != 0)
    family, mode = family_of(optimizer)
    return ir_view.OptimizerFacts(
        family=family,
        mode=mode,
        nonconst=nonconst,
        specific=frozenset(w for w in weights if optimizer.hasSpecific(w)),
        momentum=frozenset(w for w in weights if isinstance(optimizer, (SGD, Adaptive)) and optimizer.has_momentum(w)),
        nesterov=frozenset(w for w in weights if isinstance(optimizer, SGD) and optimizer.has_nesterov(w)),
        weight_decay=frozenset(w for w in weights if (w if optimizer.hasSpecific(w) else "") in decays),
        l2=isinstance(optimizer, (Adam, Adaptive)) and optimizer.decay_mode is WeightDecayMode.L2Regularization,
        scaled_state=isinstance(optimizer, Adam) and optimizer.scaled_state,
        trust_ratio=_trusts_ratio(optimizer),
        clips=tuple(
            ir_view.ClipGroup(None if c.covers_all() else tuple(c.weightIds), c.maxNorm) for c in optimizer.clip_norms()
        ),
    )


def _where(
    optimizer: Optimizer, field: str, weights: Collection[str], test: Callable[[OptimizerValue], bool]
) -> frozenset[str]:
    found = {w for w in weights if optimizer.hasSpecific(w) and test(optimizer.value(field, w))}
    return frozenset(found | ({""} if test(optimizer.value(field)) else set()))


def _trusts_ratio(optimizer: Optimizer) -> bool:
    if not isinstance(optimizer, Adam) or optimizer.mode not in (AdamMode.Lamb, AdamMode.LambNoBias):
        return True
    limit = optimizer.value("maxWeightNorm")
    return not (limit.isConst() and limit.val() == 0)


def family_of(optimizer: Optimizer) -> tuple[Literal["SGD", "Adam", "Adaptive"], str]:
    """Family and mode under PopART's names."""
    if isinstance(optimizer, SGD):
        return "SGD", optimizer.accumulator.name
    if isinstance(optimizer, Adam):
        return "Adam", optimizer.mode.name
    assert isinstance(optimizer, Adaptive)
    return "Adaptive", optimizer.mode.name


def _place(place: TensorLocation, off_chip: int = 0, sharded: int = 0) -> ir_view.Location:
    return ir_view.Location(
        place.storage is TensorStorage.OffChip,
        place.replicatedTensorSharding is ReplicatedTensorSharding.On,
        off_chip,
        sharded,
    )


def _location(kind: TensorLocationSettings) -> ir_view.Location:
    return _place(kind.location, kind.minElementsForOffChip, kind.minElementsForReplicatedTensorSharding)


def view_options(session: Described) -> ir_view.ViewOptions:
    """The session options that the op list depends on."""
    options, structure = session.request.options, session.program.structure
    scaling = options.automaticLossScalingSettings
    method: GradientTensorTrackingMethod = scaling.gradientTensorTrackingMethod
    return ir_view.ViewOptions(
        accumulation_factor=structure.accumulation,
        accumulate=options.enableGradientAccumulation,
        replicas=structure.replicas,
        mean_reduction=options.accumulationAndReplicationReductionType is ReductionType.Mean,
        running_mean=options.meanAccumulationAndReplicationReductionStrategy is MeanReductionStrategy.Running,
        outlining=options.enableOutlining,
        outline_threshold=options.outlineThreshold,
        pipelining=options.enablePipelining,
        forward_only_program=options.createImplicitPipeliningFwdOnlyProgram,
        explicit_ir=options.enableExplicitMainLoops and options.explicitRecomputation,
        virtual_graphs=options.virtualGraphMode.name,
        ipus=max(1, session.request.device.numIpus // max(1, session.local_replicas)),
        split_ratios=tuple(options.virtualGraphSplitRatios),
        recomputation=options.autoRecomputation.name,
        explicit_recomputation=options.explicitRecomputation,
        host_copy_ops=options.useHostCopyOps,
        on_io_tiles=_on_io_tiles(session) if options.numIOTiles else frozenset(),
        activations=_location(options.activationTensorLocationSettings),
        weights=_location(options.weightTensorLocationSettings),
        optimizer_state=_location(options.optimizerStateTensorLocationSettings),
        accumulators=_location(options.accumulatorTensorLocationSettings),
        located={name: _place(place) for name, place in options.tensorLocationSettingsOverride.items()},
        main_loops=options.enableExplicitMainLoops,
        batches=session.request.data_flow.batchesPerStep(),
        fully_connected_pass=options.enableFullyConnectedPass,
        serialized_matmuls=options.enableSerializedMatmuls,
        matmul_partials=(options.partialsTypeMatMuls or "float").upper(),
        decompose_grad_sum=options.decomposeGradSum,
        stochastic_rounding=options.enableStochasticRounding,
        automatic_loss_scaling=scaling.enabled,
        loss_scale_period=scaling.updatePeriod,
        histograms_first=options.delayVarUpdates
        and options.scheduleNonWeightUpdateGradientConsumersEarly
        and not options.enableExplicitMainLoops,
        tracking=method.name,
        tracked=frozenset(scaling.toTrackTensors or ()),
        batch_serialisation=_batch_serialisation(options.batchSerializationSettings),
        groups={n: _groups(h.variable.groups) for n, h in session.variables.items() if len(h.variable.groups) > 1},
    )


def _on_io_tiles(session: Described) -> frozenset[str]:
    """Streamed inputs and anchors that programs ask to transfer on I/O tiles."""
    chosen = {entry.key: entry.value for entry in session.source.proto.metadata_props}
    flow, wanted = session.request.data_flow, str(int(TileSet.IO))
    streams = (n for n in session.program.streams if chosen.get(input_metadata(n)[0]) == wanted)
    return frozenset(streams) | {n for n in flow.anchors() if flow.art(n).tileSet() is TileSet.IO}


def _groups(members: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
    found = groups_of(members)
    return found.stride, found.size


def _batch_serialisation(settings: BatchSerializationSettings) -> ir_view.BatchSerialisation:
    joined = {
        VIRTUAL_GRAPH: settings.concatOnVirtualGraphChange,
        EXECUTION_PHASE: settings.concatOnExecutionPhaseChange,
        PIPELINE_STAGE: settings.concatOnPipelineStageChange,
    }
    return ir_view.BatchSerialisation(
        settings.factor,
        settings.method.name,
        settings.transformContext is BatchSerializationTransformContext.Bwd,
        tuple(name for name, on in joined.items() if on),
        settings.batchSchedule.name,
    )
