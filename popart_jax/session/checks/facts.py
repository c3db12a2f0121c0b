"""Collects the facts of a session that the option checks depend on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ...enums import AnchorReturnTypeId, ExchangeStrategy, RecomputeType
from ...model.attribute_names import EXECUTION_PHASE, PIPELINE_STAGE, RECOMPUTE, VIRTUAL_GRAPH, input_metadata
from ...model.checks.structure import every_node
from ...model.op_names import op_names
from ..requests import Request
from .options import OptionFacts
from .placement import PlacedOp


def option_facts(model: ir.Model, request: Request) -> OptionFacts:
    """The facts, from the model and the constructor's arguments."""
    flow, device, optimizer = request.data_flow, request.device, request.optimizer
    kinds = [flow.art(name) for name in flow.anchors()]
    nodes = list(every_node(model.graph))
    streams = [v.name or "" for v in model.graph.inputs if v.name not in model.graph.initializers]
    return OptionFacts(
        training=request.loss is not None,
        device=device.type,
        ipus=device.numIpus,
        tiles=device.tilesPerIPU,
        batches_per_step=flow.batchesPerStep(),
        ops=[_placed(node, model, i) for i, node in enumerate(_ops(model))],
        user_recompute=any(_number(node, RECOMPUTE) == int(RecomputeType.Recompute) for node in nodes),
        clips_gradients=optimizer is not None and bool(optimizer.clip_norms()),
        const_loss_scale=optimizer is None or optimizer.value("lossScaling").isConst(),
        anchors={name: flow.art(name).id().name for name in flow.anchors()},
        exchange=[*(kind.exchangeStrategy() for kind in kinds), *_exchange_of_inputs(model, streams)],
        every_n=any(kind.id() is AnchorReturnTypeId.EveryN for kind in kinds),
        op_types=frozenset(node.op_type for node in nodes),
        variables=frozenset(model.graph.initializers),
        streams=streams,
    )


def _exchange_of_inputs(model: ir.Model, streams: Sequence[str]) -> Iterator[ExchangeStrategy]:
    """How inputs are read, of those for which the model says it."""
    written = {str(int(strategy)): strategy for strategy in ExchangeStrategy}
    found = (written.get(model.metadata_props.get(input_metadata(name)[1], "")) for name in streams)
    return (strategy for strategy in found if strategy is not None)


def _ops(model: ir.Model) -> Iterator[ir.Node]:
    return (node for node in model.graph if node.op_type != "Constant")


def _placed(node: ir.Node, model: ir.Model, number: int) -> PlacedOp:
    names = op_names(node, model.opset_imports.get("", 11), number)
    return PlacedOp(
        names["Op"],
        tuple(v.name or "" for v in node.inputs if v is not None),
        tuple(v.name or "" for v in node.outputs),
        _number(node, VIRTUAL_GRAPH),
        _number(node, PIPELINE_STAGE),
        _number(node, EXECUTION_PHASE),
        names["op"],
    )


def _number(node: ir.Node, name: str) -> int | None:
    return node.attributes.get_int(name) if name in node.attributes else None
