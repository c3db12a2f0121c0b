"""From a prepared session to the facts that `ir_view` works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..enums import MeanReductionStrategy, ReductionType
from ..ir_view import IrFacts, ViewOptions
from ..ir_view.optimizer_facts import optimizer_facts

if TYPE_CHECKING:
    from .preparing.prepared import Prepared


def facts_of(prepared: Prepared) -> IrFacts:
    """Graph, types, variables, anchors, loss, optimizer, patterns and options of a session."""
    request = prepared.request
    graph = ir.from_proto(prepared.proto).graph
    variables = frozenset(prepared.held) - prepared.state - prepared.constants
    optimizer = None if request.optimizer is None else optimizer_facts(request.optimizer, variables)
    return IrFacts(
        graph=graph,
        types={n: (ir.DataType.from_numpy(t.dtype), tuple(t.shape)) for n, t in prepared.infos.items()},
        variables=variables,
        anchors=frozenset(request.data_flow.anchors()),
        loss=request.loss,
        optimizer=optimizer,
        selection=request.patterns.selection,
        options=view_options(request.options),
    )


def view_options(options: Any) -> ViewOptions:
    """The options that the op list depends on."""
    scaling = options.automaticLossScalingSettings
    tracking = scaling.gradientTensorTrackingMethod.name
    return ViewOptions(
        accumulation_factor=options.accumulationFactor,
        accumulate=options.enableGradientAccumulation,
        replicas=options.getGlobalReplicationFactor(),
        mean_reduction=options.accumulationAndReplicationReductionType is ReductionType.Mean,
        running_mean=options.meanAccumulationAndReplicationReductionStrategy is MeanReductionStrategy.Running,
        outlining=options.enableOutlining,
        outline_threshold=options.outlineThreshold,
        pipelining=options.enablePipelining,
        explicit_ir=options.enableExplicitMainLoops,
        virtual_graphs=options.virtualGraphMode.name,
        recomputation=options.autoRecomputation.name,
        explicit_recomputation=options.explicitRecomputation,
        host_copy_ops=options.useHostCopyOps,
        fully_connected_pass=options.enableFullyConnectedPass,
        decompose_grad_sum=options.decomposeGradSum,
        stochastic_rounding=options.enableStochasticRounding,
        automatic_loss_scaling=scaling.enabled,
        loss_scale_period=scaling.updatePeriod,
        tracking=tracking,
        tracked=frozenset(scaling.toTrackTensors or ()),
    )
