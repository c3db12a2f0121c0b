"""Time of a run of the program: in sequence, or with the stages of a pipeline side by side."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from ipu_model.cost import ZERO, Cost, Number, softer_larger
from ipu_model.pricing import Priced
from ipu_model.schedule.pipeline import Loads, Span, first_cycles, loads_of, spans


@dataclass(frozen=True)
class Timing:
    """Cycles of a run; see `ipu_model.report.model.Schedule`."""

    kind: str
    cycles: Number
    bubbles: Number
    overlapped: Number
    stages: tuple[Number, ...] = ()  # of a pipeline: one micro-batch in each stage
    # its cycles, once from empty to empty; `flows` such follow each other, then the update
    spans: tuple[Span, ...] = ()
    flows: int = 1
    begins: tuple[Number, ...] = ()  # when each IPU begins to work; empty when everything runs in turn


def timing(priced: Priced) -> Timing:
    """Choose the schedule that the placement asks for."""
    if priced.placement.pipelined and priced.placement.ipus > 1:
        return pipelined(priced)
    return sequential(priced)


def sequential(priced: Priced) -> Timing:
    """The sequential schedule; host traffic overlaps compute when the options say so."""
    total = priced.total
    hidden = _hidden(priced, total)
    return Timing("sequential", total.total - hidden, 0.0, hidden)


def _hidden(priced: Priced, work: Cost) -> Number:
    """The part of the host traffic of some work that is hidden behind the rest of it."""
    if not priced.context.options.overlap_io:
        return 0.0
    busy = work.compute + work.exchange + work.sync + work.inter_ipu
    return -softer_larger(-work.host, -busy, priced.context.options.smooth)  # the smaller of the two


def pipelined(priced: Priced) -> Timing:
    """Stages run side by side on consecutive micro-batches, in steps: all IPUs wait for the slowest of a cycle.

    ``m`` micro-batches take ``m + stages - 1`` pipeline cycles; in cycle ``k`` stage ``s`` works on micro-batch
    ``k - s``. With gradient accumulation the pipeline is filled and drained for each update; without it, once per run.
    What is outside the pipeline (the update) comes after. What an IPU does not use of that time is its bubble.
    """
    options, ipus = priced.context.options, max(1, priced.placement.ipus)
    accumulated, batches = max(1, options.gradient_accumulation), max(1, options.batches_per_step)
    flows, micro = (batches, accumulated) if accumulated > 1 else (1, batches)
    loads = loads_of(priced, flows * micro)

    def time(work: Cost) -> Number:
        return work.total - _hidden(priced, work)

    def largest(values: Iterable[Number]) -> Number:
        return functools.reduce(lambda a, b: softer_larger(a, b, options.smooth), values, 0.0)

    found = spans(loads, micro, ipus, time, largest)
    flow = sum(s.cycles * s.repeats for s in found)
    cycles = flows * flow + largest([time(work) for work in loads.outside.values()])
    total = sum(loads.outside.values(), sum((c * (flows * micro) for c in loads.inside.values()), ZERO))
    busy = flows * sum(sum(s.busy) * s.repeats for s in found) + sum(time(w) for w in loads.outside.values())
    begins = first_cycles(found, loads, ipus)
    return Timing(
        "pipelined", cycles, cycles * ipus - busy, total.total - busy, _per_stage(loads), found, flows, begins
    )


def _per_stage(loads: Loads) -> tuple[Number, ...]:
    return tuple(
        sum(cost.total for (stage, _), cost in loads.inside.items() if stage == k) for k in range(loads.stages)
    )
