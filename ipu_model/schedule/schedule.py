"""Time of a run of the program: in sequence, or with the stages of a pipeline side by side."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ipu_model.cost import Number, softer_larger
from ipu_model.pricing import Priced


@dataclass(frozen=True)
class Timing:
    """Cycles of a run; see `ipu_model.report.model.Schedule`."""

    kind: str
    cycles: Number
    bubbles: Number
    overlapped: Number
    stages: tuple[Number, ...]


def timing(priced: Priced) -> Timing:
    """Choose the schedule that the placement asks for."""
    if priced.placement.pipelined and priced.placement.ipus > 1:
        return pipelined(priced)
    return sequential(priced)


def sequential(priced: Priced) -> Timing:
    """Everything in turn; host traffic behind compute when the options say so."""
    total = priced.total
    hidden = _hidden(priced, total.host, total.compute + total.exchange + total.sync)
    return Timing("sequential", total.total - hidden, 0.0, hidden, ())


def _hidden(priced: Priced, host: Number, busy: Number) -> Number:
    if not priced.context.options.overlap_io:
        return 0.0
    return -softer_larger(-host, -busy, priced.context.options.smooth)  # the smaller of the two


def stage_of(priced: Priced, at: int) -> int:
    """Pipeline stage of a step: the node's own, mirrored behind the last one in the backward pass."""
    step = priced.program.steps[at]
    placed = priced.placement.nodes.get(step.scope.node)
    stages = [p.stage for p in priced.placement.nodes.values() if p.stage is not None]
    last = max(stages, default=priced.placement.ipus - 1)
    stage = placed.stage if placed and placed.stage is not None else priced.ipus[at]
    return 2 * last - stage if step.scope.phase == "backward" else stage


def pipelined(priced: Priced) -> Timing:
    """Stages run side by side on consecutive micro-batches.

    Of ``m`` micro-batches through stages on IPUs that take ``c_i`` cycles per micro-batch, a flow through the pipeline
    takes ``sum of the stages + (m - 1) max c_i``. With gradient accumulation the pipeline is filled and drained for
    each update; without it, once per run. What is outside the pipeline (the update) comes after. What an IPU does not
    use of that time is its bubble.
    """
    options = priced.context.options
    accumulated, batches = max(1, options.gradient_accumulation), max(1, options.batches_per_step)
    flows, micro = (batches, accumulated) if accumulated > 1 else (1, batches)
    per_stage: dict[int, Number] = defaultdict(float)
    per_ipu: dict[int, Number] = defaultdict(float)
    outside: dict[int, Number] = defaultdict(float)
    for at, cost in enumerate(priced.costs):
        cycles, ipu = cost.total * priced.trips[at], priced.ipus[at]
        if priced.program.steps[at].scope.phase == "update":
            outside[ipu] = outside[ipu] + cycles
        else:
            stage = stage_of(priced, at)
            per_stage[stage] = per_stage[stage] + cycles
            per_ipu[ipu] = per_ipu[ipu] + cycles
    slowest, tail = (_maximum(v.values(), options.smooth) for v in (per_ipu, outside))
    count = flows * micro
    once = sum(per_stage.values()) / count
    cycles = flows * (once + (micro - 1) * slowest / count) + tail
    busy = sum(per_ipu.values()) + sum(outside.values())
    bubbles = cycles * max(1, priced.placement.ipus) - busy
    return Timing("pipelined", cycles, bubbles, 0.0, tuple(per_stage[s] / count for s in sorted(per_stage)))


def _maximum(values: Iterable[Number], smooth: float) -> Number:
    return functools.reduce(lambda a, b: softer_larger(a, b, smooth), values, 0.0)
