"""From a priced program to the report."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from typing import Any

from ipu_model.cost import ZERO, Cost
from ipu_model.costs.rule import Superstep, superstep_cost
from ipu_model.memory import Liveness
from ipu_model.pricing import Priced
from ipu_model.report.memory import memory_of
from ipu_model.report.model import (
    FrameRow,
    IpuRow,
    Part,
    Schedule,
    StepRow,
    VertexRow,
    plain,
)
from ipu_model.report.operations import operations
from ipu_model.report.report import Report
from ipu_model.schedule import Span, Timing
from ipu_model.target import Target
from ipu_model.walk.program import PRODUCTS
from ipu_model.walk.scope import PHASES, UPDATE


def build(priced: Priced, time: Timing, live: Liveness, code: dict[str, Any], types: list[Any]) -> Report:
    """Build the report from all parts; `code` holds bytes per category, IPU and tile."""
    steps = _steps(priced, live, time)
    samples = priced.context.options.samples_per_step
    seconds = float(priced.context.target.seconds(float(time.cycles)))
    schedule = Schedule(
        time.kind, float(time.cycles), float(time.bubbles), float(time.overlapped), seconds,
        samples / seconds if seconds else 0.0, tuple(float(s) for s in time.stages),
        tuple(_span(s) for s in time.spans), time.flows,
    )  # fmt: skip
    memory = memory_of(priced, live, code)
    return Report(
        name=priced.context.options.name,
        target=describe(priced.context.target, priced),
        cycles=plain(priced.total),
        phases=_phases(priced),
        ipus=_ipus(priced, schedule),
        schedule=schedule,
        operations=operations(priced),
        steps=steps,
        frames=tuple(FrameRow(f.kind, f.name, f.parent, f.trips, f.begin, f.end) for f in priced.program.frames),
        vertices=_vertices(types, steps),
        memory=memory,
        unpriced=dict(sorted(priced.unpriced.items())),
        assumptions=tuple(dict.fromkeys(priced.assumptions)),
    )


def describe(target: Target, priced: Priced) -> dict[str, Any]:
    """Facts of the target under Poplar's names."""
    m, ipus = target.machine, max(1, priced.placement.ipus)
    replicas = priced.context.options.replicas
    return {
        "name": target.name,
        "type": "IPU_MODEL",
        "architecture": target.architecture,
        "tilesPerIPU": m.tiles,
        "numIPUs": ipus * replicas,
        "ipusPerReplica": ipus,
        "numReplicas": replicas,
        "numTiles": m.tiles * ipus * replicas,
        "bytesPerTile": m.tile_memory,
        "bytesPerIPU": m.tile_memory * m.tiles,
        "totalMemory": m.tile_memory * m.tiles * ipus * replicas,
        "clockFrequency": float(target.clock_hz),
        "interleavedStart": m.interleaved_start,
        "peakFlops": float(target.peak_flops()),
        "minSyncDelay": round(float(target.sync_cycles)),
    }


def _span(s: Span) -> Span:
    return dataclasses.replace(s, start=float(s.start), cycles=float(s.cycles), busy=tuple(float(b) for b in s.busy))


def _starts(priced: Priced, time: Timing) -> list[float]:
    """When each step starts: after the one before it, on its IPU where those run side by side."""
    begins = [float(b) for b in time.begins]
    ends = time.flows * float(sum(s.cycles * s.repeats for s in time.spans))
    inside, outside = (begins, [ends] * len(begins)) if begins else ([0.0], None)
    found: list[float] = []
    for at, step in enumerate(priced.program.steps):
        clocks = outside if outside is not None and step.scope.phase == UPDATE else inside
        own = priced.ipus[at] if begins else 0
        found.append(clocks[own])
        clocks[own] += float(priced.costs[at].total) * priced.trips[at]
    return found


def _steps(priced: Priced, live: Liveness, time: Timing) -> tuple[StepRow, ...]:
    rows: list[StepRow] = []
    parts_of: dict[Any, tuple[Part, ...]] = {}
    starts = _starts(priced, time)
    memo: dict[int, Cost] = {}
    codes = _Codes(priced)
    for at, step in enumerate(priced.program.steps):
        cost, trips = priced.costs[at], priced.trips[at]
        once = memo.get(id(cost)) or plain(cost)
        memo[id(cost)] = once
        fused = priced.into[at] >= 0
        extra = priced.extras.get(at, ())
        key = (id(priced.prices[at]), extra, fused)
        parts = parts_of.get(key)
        if parts is None:
            own = () if fused else priced.prices[at].supersteps
            parts = parts_of[key] = tuple(_part(s, priced.context.target) for s in (*extra, *own))
        name = step.path
        code = codes.name(at, name, parts)
        rows.append(
            StepRow(
                name, step.scope.node, step.scope.phase, step.op.primitive,
                str(step.op.outputs[0]) if step.op.outputs else "", priced.ipus[at], trips, once, starts[at], parts,
                step.frame, tuple(int(b) for b in live.steps[at]), fused, code,
            )
        )  # fmt: skip
    return tuple(rows)


class _Codes:
    """Names of the pieces of code that steps call."""

    def __init__(self, priced: Priced) -> None:
        self._priced = priced
        self._names: dict[Any, str] = {}
        self._products: Counter[str] = Counter()

    def name(self, at: int, step: str, parts: tuple[Part, ...]) -> str:
        """Name of a step's code: that of the first step that calls it, numbered where another product has that path."""
        code = self._code(at)
        if code not in self._names:
            path = f"{step}/{parts[0].name.rpartition('/')[0]}" if parts else step
            other = self._products[path]
            self._names[code] = f"{step}({other})" if other else step
            self._products[path] += self._priced.program.steps[at].op.primitive in PRODUCTS
        return self._names[code]

    def _code(self, at: int) -> Any:
        """A key that is equal for steps that share code; every step has its own if nothing is outlined.

        Products with equal operands share code; those of a dense layer are planned by pass, unless passes are off.
        """
        op, options = self._priced.program.steps[at].op, self._priced.context.options
        if not options.outlining:
            return at
        ipu = self._priced.ipus[at]
        if op.primitive not in PRODUCTS:
            return id(op), ipu
        dense = op.primitive == "dot_general" and options.fully_connected_pass
        role = (op.phase, str(op.params["dimension_numbers"])) if dense else ()
        return op.primitive, ipu, tuple((t.shape, str(t.dtype)) for t in (*op.inputs, *op.outputs)), role


def _part(s: Superstep, target: Target) -> Part:
    one = superstep_cost(dataclasses.replace(s, times=1), target)
    return Part(
        s.name,
        s.vertex,
        int(s.vertices),
        int(s.tiles),
        float(s.balance),
        float(s.received),
        plain(one),
        float(s.times),
    )


def _phases(priced: Priced) -> dict[str, Cost]:
    sums: dict[str, Cost] = dict.fromkeys(PHASES, ZERO)
    for at, step in enumerate(priced.program.steps):
        sums[step.scope.phase] = sums[step.scope.phase] + priced.costs[at] * priced.trips[at]
    return {phase: plain(cost) for phase, cost in sums.items()}


def _ipus(priced: Priced, schedule: Schedule) -> tuple[IpuRow, ...]:
    sums = [ZERO] * max(1, priced.placement.ipus)
    for at, cost in enumerate(priced.costs):
        sums[priced.ipus[at]] = sums[priced.ipus[at]] + cost * priced.trips[at]
    rows = [plain(c) for c in sums]
    return tuple(IpuRow(i, c, max(0.0, schedule.cycles - c.total)) for i, c in enumerate(rows))


def _vertices(types: list[Any], steps: tuple[StepRow, ...]) -> tuple[VertexRow, ...]:
    spent: dict[str, float] = defaultdict(float)
    for row in steps:
        for p in row.parts:
            spent[p.vertex] += p.cycles.compute * p.times * row.trips
    return tuple(
        VertexRow(t.name, t.instances, t.tiles, t.code_bytes, t.state_bytes, spent[t.name], t.field_bytes)
        for t in types
    )
