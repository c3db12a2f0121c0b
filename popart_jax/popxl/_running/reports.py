"""The IPU model's view of a PopXL program."""

from __future__ import annotations

from functools import partial
from typing import Any

import ipu_model
from ipu_model.placement import Phase

from ...execution import pricing
from ...ops.operator import UPDATES
from ...ops.registry import facts
from ...session.reports.pricing import target_of
from .._internal.enums import TileSet
from .._internal.op import Op
from ..graph import Graph
from .code_loads import with_code_loads
from .program import REMOTE, Programs

_PARTIALS = {"HALF": "half", "FLOAT": "float"}


def price(programs: Programs, device: Any, name: str) -> ipu_model.Report:
    """The modelled cost of one run, with the placement that its operators carry."""
    target = target_of(device)
    report = pricing.price(
        programs.steps["main"],
        partial(_argument, programs),
        target=target,
        placement=_placement(programs),
        options=_options(programs, name),
    )
    return with_code_loads(report, programs, target)


def _argument(programs: Programs, name: str) -> ipu_model.Argument:
    if name not in programs.resident:
        return ipu_model.Argument(name, "stream")
    kind, _, own = name.partition(":")
    shown = f"remote buffer {own}" if f"{kind}:" == REMOTE else own
    return ipu_model.Argument(shown, "weight", ipu_model.Location(name not in programs.buffers, False))


def _placement(programs: Programs) -> ipu_model.Placement:
    nodes, most = dict[str, ipu_model.NodePlacement](), 0
    for graph in programs.owner._graphs.values():
        for op in graph._ops.values():
            ipu = op._settings.vgraphId or 0
            most = max(most, ipu)
            partials = op._options.get("partials_type")
            nodes[op._node.name or ""] = ipu_model.NodePlacement(
                ipu,
                op._settings.pipelineStage,
                _PARTIALS.get(str(partials)),
                op._options.get("available_memory_proportion"),
                io_tiles=op._settings.tileSet is TileSet.IO,
                phase=_phase(graph, op),
                operator=op._node.op_type,
            )
    return ipu_model.Placement(nodes, most + 1, False)


def _phase(graph: Graph, op: Op) -> Phase | None:
    """The pass of an operator: gradient graphs are the backward pass, and what changes variables is the update."""
    if facts(op._node.op_type).has(UPDATES):
        return "update"
    return "backward" if graph._is_gradient else None


def _options(programs: Programs, name: str) -> ipu_model.ModelOptions:
    options = programs.owner._options
    return ipu_model.ModelOptions(
        name=name,
        replicas=programs.replicas,
        batches_per_step=programs.transfers,
        partials="half" if str(options.partialsTypeMatMuls).lower() == "half" else "float",
        fully_connected_pass=bool(options.enableFullyConnectedPass),
        io_tiles=int(options.numIOTiles),
        overlap_io=int(options.numIOTiles) > 0,
    )
