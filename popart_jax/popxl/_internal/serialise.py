"""The JSON text of an Ir, in the form that a session's op list has."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ...ir_view.serialise import MAIN, op_attributes, operation, text
from ...model.attribute_names import REPLICA_GROUPING
from ..graph import Graph
from .op import Op
from .schedule import schedule

_OF_COLLECTIVES = {"op": "__collectiveOperator", "groups": REPLICA_GROUPING}


def to_json(graphs: Collection[Graph]) -> str:
    """Serialise graphs, each with its ops in schedule order."""
    names = {id(g._graph): g.id or MAIN for g in graphs}
    return json.dumps({names[id(g._graph)]: [_op(op, names) for op in schedule(g)] for g in graphs})


def _op(op: Op, names: Mapping[int, str]) -> dict[str, Any]:
    settings = op._settings
    placed = {
        "tileSet": settings.tileSet.value,
        "__execution_context": settings.executionContext.name if not op._graph.id else "Subgraph",
        "scope": str(op.getScope()),
        "__ipu_number": settings.vgraphId,
        "__pipeline_stage": settings.pipelineStage,
        "__execution_phase": settings.executionPhase,
        "available_memory_proportion": op._options.get("available_memory_proportion"),
        "partialsType": op._options.get("partials_type"),
    }
    if op.isIpuCopyOp():
        placed |= {"__sourceIpus": (op._options["source"],), "__destIpu": op._options["destination"]}
    given = op_attributes(op._node, names, not op._graph.id, True)
    if "groups" in given:
        given = {_OF_COLLECTIVES.get(name, name): value for name, value in given.items()}
    return operation(op._node, op.name(), given | {n: text(value) for n, value in placed.items() if value is not None})
