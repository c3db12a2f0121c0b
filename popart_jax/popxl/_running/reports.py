"""The IPU model's view of a PopXL program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import ipu_model
from ipu_model.cost import ZERO, Cost
from ipu_model.report.model import Part, StepRow

from ...execution import pricing
from ...session.reports.pricing import target_of
from .._internal.cleanup import reachable
from .._internal.enums import TileSet
from .program import Programs

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
    return _with_code_loads(report, programs, target)


def _with_code_loads(report: ipu_model.Report, programs: Programs, target: Any) -> ipu_model.Report:
    """One more stream copy for each `remote_code_load`: the graph's share of the code, from streaming memory."""
    ops = [op for graph in reachable(programs.owner) for op in graph._ops.values()]
    loads = [op for op in ops if op.opType() == "RemoteCodeLoad"]
    if not loads:
        return report
    code = sum(row.code_bytes * row.tiles for row in report.vertices)
    steps, total = list(report.steps), ZERO
    for op in loads:
        size = code * len(op._options["graph"]._ops) / len(ops)
        cycles = Cost(host=size / target.streaming_bytes_per_second * target.clock_hz)
        part = Part("StreamCopy/in", "", 0, report.target["tilesPerIPU"], 1.0, size, cycles)
        name = f"remote_code_load/{op.id}/{op.opType()} Remote -> Device , graph: {op._options['graph'].id}"
        ipu = op._settings.vgraphId or 0
        steps.append(StepRow(name, op._node.name or name, "forward", "remote_code_load", "", ipu, 1, cycles,
                             report.cycles.total + total.total, (part,), 0))  # fmt: skip
        total = total + cycles
    schedule = replace(report.schedule, cycles=report.schedule.cycles + total.total)
    phases = {**report.phases, "forward": report.phases["forward"] + total}
    return replace(report, steps=tuple(steps), cycles=report.cycles + total, phases=phases, schedule=schedule)


def _argument(programs: Programs, name: str) -> ipu_model.Argument:
    if name not in programs.resident:
        return ipu_model.Argument(name, "stream")
    on_chip = name not in programs.buffers
    return ipu_model.Argument(name.partition(":")[2], "weight", ipu_model.Location(on_chip, False))


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
                operator=op._node.op_type,
            )
    return ipu_model.Placement(nodes, most + 1, False)


def _options(programs: Programs, name: str) -> ipu_model.ModelOptions:
    options = programs.owner._options
    return ipu_model.ModelOptions(
        name=name,
        replicas=programs.replicas,
        batches_per_step=programs.transfers,
        partials="half" if str(options.partialsTypeMatMuls).lower() == "half" else "float",
        io_tiles=int(options.numIOTiles),
        overlap_io=int(options.numIOTiles) > 0,
    )
