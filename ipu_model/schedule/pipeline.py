"""Pipeline schedule: the pipeline cycles while it fills, runs all stages, and drains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipu_model.cost import ZERO, Cost, Number
from ipu_model.pricing import Priced


@dataclass(frozen=True, slots=True)
class Span:
    """Equal pipeline cycles in a row: stages `first` to `last` (exclusive) work at the same time, on micro-batches."""

    first: int
    last: int
    repeats: int
    # in cycles: when the first of them begins, and how long each takes: as long as its busiest IPU
    start: Number
    cycles: Number
    busy: tuple[Number, ...]  # work of each IPU in one of them; the rest of its time it waits


@dataclass(frozen=True)
class Loads:
    """Work of one micro-batch by stage and IPU, and the work after all micro-batches (updates) by IPU."""

    stages: int
    inside: Mapping[tuple[int, int], Cost]
    outside: Mapping[int, Cost]


def active_stages(stages: int, micro: int) -> Iterator[tuple[int, int, int]]:
    """First and last (exclusive) stage with work in each pipeline cycle, and how many such cycles follow each other.

    In cycle ``k`` stage ``s`` works on micro-batch ``k - s``, if there is one.

    Examples
    --------
    >>> list(active_stages(3, 10))
    [(0, 1, 1), (0, 2, 1), (0, 3, 8), (1, 3, 1), (2, 3, 1)]
    """
    short, long = min(stages, micro), max(stages, micro)
    yield from ((0, k, 1) for k in range(1, short))
    if micro >= stages:
        yield 0, stages, long - short + 1
    else:
        yield from ((k, k + micro, 1) for k in range(long - short + 1))
    yield from ((stages - k, stages, 1) for k in reversed(range(1, short)))


def spans(
    loads: Loads, micro: int, ipus: int, time: Callable[[Cost], Number], largest: Callable[..., Any]
) -> tuple[Span, ...]:
    """The pipeline cycles of `micro` micro-batches; `time` says how long an IPU takes for the work of a cycle."""
    found: list[Span] = []
    clock: Any = 0.0
    for first, last, repeats in active_stages(loads.stages, micro):
        works = [ZERO] * ipus
        for (stage, ipu), cost in loads.inside.items():
            if first <= stage < last:
                works[ipu] = works[ipu] + cost
        busy = tuple(time(work) for work in works)
        found.append(Span(first, last, repeats, clock, largest(busy), busy))
        clock = clock + found[-1].cycles * repeats
    return tuple(found)


def loads_of(priced: Priced, micro_batches: int) -> Loads:
    """Work of one micro-batch of `micro_batches`; recomputed steps belong to the backward stage of their node."""
    inside: dict[tuple[int, int], Cost] = defaultdict(lambda: ZERO)
    outside: dict[int, Cost] = defaultdict(lambda: ZERO)
    last = last_stage(priced)
    again = priced.recomputed
    for at, (cost, step) in enumerate(zip(priced.costs, priced.program.steps, strict=True)):
        whole, ipu, stage = cost * priced.trips[at], priced.ipus[at], stage_of(priced, at, last)
        if step.scope.phase == "update":
            outside[ipu] = outside[ipu] + whole
            continue
        share = whole * (1 / micro_batches)
        if step.scope.phase == "forward" and step.unit in again:
            share = share * 0.5  # its trips count both passes
            inside[2 * last - stage, ipu] = inside[2 * last - stage, ipu] + share
        inside[stage, ipu] = inside[stage, ipu] + share
    stages = 2 * last + 1 if priced.context.training else last + 1
    return Loads(stages, inside, outside)


def last_stage(priced: Priced) -> int:
    """The stage with the loss, or the last one of inference."""
    stages = [p.stage for p in priced.placement.nodes.values() if p.stage is not None]
    return max(stages, default=priced.placement.ipus - 1)


def stage_of(priced: Priced, at: int, last: int) -> int:
    """Pipeline stage of a step: the node's own, mirrored behind the last one in the backward pass."""
    step = priced.program.steps[at]
    placed = priced.placement.nodes.get(step.unit)
    stage = placed.stage if placed and placed.stage is not None else min(priced.ipus[at], last)
    return 2 * last - stage if step.scope.phase == "backward" else stage


def first_cycles(found: Sequence[Span], loads: Loads, ipus: int) -> tuple[Number, ...]:
    """When each IPU begins to work: with the pipeline cycle in which its first stage has a micro-batch."""
    begins: list[Number] = []
    for ipu in range(ipus):
        own = min((stage for stage, i in loads.inside if i == ipu), default=0)
        begins.append(next((s.start for s in found if s.first <= own < s.last), 0.0))
    return tuple(begins)
