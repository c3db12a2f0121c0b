"""What `remote_code_load` adds to the modelled cost: the code of a graph comes from streaming memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ipu_model
from ipu_model.cost import ZERO, Cost
from ipu_model.report.model import OperationRow, Part, StepRow

from .._internal.cleanup import reachable
from .._internal.op import Op
from .program import Programs


def with_code_loads(report: ipu_model.Report, programs: Programs, target: ipu_model.Target) -> ipu_model.Report:
    """One more stream copy, at the end, for each `remote_code_load`: of the graph's share of the code."""
    ops = [op for graph in reachable(programs.owner) for op in graph._ops.values()]
    loads = [op for op in ops if op.opType() == "RemoteCodeLoad"]
    if not loads:
        return report
    code = sum(sum(tiles) for name, tiles in report.memory.categories.items() if name.endswith("Code"))
    steps: list[StepRow] = []
    for op in loads:
        size = code * len(op._options["graph"]._ops) / len(ops)
        cost = Cost(host=size / target.streaming_bytes_per_second * target.clock_hz)
        start = report.total_cycles + sum(step.cycles.total for step in steps)
        steps.append(_step(report, op, size, cost, start))
    return _extended(report, steps, target)


def _step(report: ipu_model.Report, op: Op, size: float, cost: Cost, start: float) -> StepRow:
    name = f"remote_code_load/{op.id}/{op.opType()} Remote -> Device , graph: {op._options['graph'].id}"
    part = Part("StreamCopy/in", "", 0, report.target["tilesPerIPU"], 1.0, size, cost)
    live = tuple(0 for _ in report.ipus)
    ipu = op._settings.vgraphId or 0
    return StepRow(
        name, op._node.name or name, "forward", "remote_code_load", "", ipu, 1, cost, start, (part,), 0, live
    )


def _extended(report: ipu_model.Report, steps: Sequence[StepRow], target: ipu_model.Target) -> ipu_model.Report:
    """The report with steps behind all others, each with an operation of its own."""
    total = sum((step.cycles for step in steps), ZERO)
    cycles = report.schedule.cycles + total.total
    schedule = replace(report.schedule, cycles=cycles, seconds=float(target.seconds(cycles)))
    first, *frames = report.frames
    operations = [
        OperationRow(s.node, s.phase, (s.primitive,), 1, s.ipu, s.cycles, 0, 0, "RemoteCodeLoad") for s in steps
    ]
    return replace(
        report,
        cycles=report.cycles + total,
        phases={**report.phases, "forward": report.phases["forward"] + total},
        ipus=tuple(_with_loads(row, steps) for row in report.ipus),
        schedule=schedule,
        operations=(*report.operations, *operations),
        steps=(*report.steps, *steps),
        frames=(replace(first, end=len(report.steps) + len(steps)), *frames),
    )


def _with_loads(row: Any, steps: Sequence[StepRow]) -> Any:
    own = sum((step.cycles for step in steps if step.ipu == row.ipu), ZERO)
    others = sum(step.cycles.total for step in steps if step.ipu != row.ipu)
    return replace(row, cycles=row.cycles + own, idle=row.idle + others)
