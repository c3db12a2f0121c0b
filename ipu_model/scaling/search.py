"""Search over all parallelisation plans of a number of chips for the best that fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from ipu_model.scaling.interconnect import Interconnect
from ipu_model.scaling.plan import Plan, Spread, priced
from ipu_model.scaling.work import Block, Work

LARGEST_TENSOR = 64
_STEPS = 40  # halvings of the interval that holds the shortest possible stage


def spreads(chips: int, blocks: int) -> Iterator[Spread]:
    """Ways to share so many chips among data, tensor and pipeline; no stage is empty."""
    for tensor in _divisors(chips):
        for pipeline in _divisors(chips // tensor):
            if tensor <= LARGEST_TENSOR and pipeline <= blocks:
                yield Spread(chips // tensor // pipeline, tensor, pipeline)


def in_stages(blocks: Sequence[Block], count: int, tensor: int = 1) -> list[Sequence[Block]]:
    """Blocks in `count` runs, none of them empty, whose longest is as short as possible."""
    times = [(b.forward + b.backward) / (tensor if b.divides else 1) for b in blocks]
    low, high = max(times), sum(times)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_cuts(times, middle, count)) <= count else (middle, high)
    ends = _cuts(times, high, count)
    starts = [0, *ends[:-1]]
    return [blocks[a:b] for a, b in zip(starts, ends, strict=True)]


def _cuts(times: Sequence[float], limit: float, count: int) -> list[int]:
    """Ends of runs no longer than a limit; a run ends earlier where too few blocks would be left for the others."""
    ends: list[int] = []
    spent = 0.0
    for at, time in enumerate(times):
        left = len(times) - at
        if at > (ends[-1] if ends else 0) and (spent + time > limit or left <= count - len(ends) - 1):
            ends.append(at)
            spent = 0.0
        spent += time
    return [*ends, len(times)]


def single(work: Work, accumulation: int) -> float:
    """Samples per second of one chip with unlimited memory."""
    alone = Interconnect(())
    return priced(work, [work.blocks], Spread(1, 1, 1), alone, accumulation, recompute=False).throughput


def best_plans(
    work_of: Callable[[int], Work], chips: int, links: Interconnect, memory: float, accumulation: int
) -> tuple[list[Plan], list[Plan]]:
    """Plans for a number of chips.

    Parameters
    ----------
    work_of : callable
        The program for a number of tensor-parallel chips, which decides which blocks can be divided.
    chips : int
    links : Interconnect
    memory : float
        Bytes of a chip.
    accumulation : int
        Micro-batches of a step on each replica.

    Returns
    -------
    fitting, others : lists of Plan
        Plans that fit, by throughput, and the others, by the memory they need.
    """
    one = single(work_of(1), accumulation)
    found: list[Plan] = []
    for spread in spreads(chips, len(work_of(1).blocks)):
        work = work_of(spread.tensor)
        if spread.tensor > 1 and not any(b.divides for b in work.blocks):
            continue
        stages = in_stages(work.blocks, spread.pipeline, spread.tensor)
        plan = priced(work, stages, spread, links, accumulation, recompute=False)
        if plan.memory > memory and work.training:
            plan = priced(work, stages, spread, links, accumulation, recompute=True)
        found.append(dataclasses.replace(plan, efficiency=plan.throughput / (chips * one)))
    fitting = sorted((p for p in found if p.memory <= memory), key=lambda p: -p.throughput)
    return fitting, sorted((p for p in found if p.memory > memory), key=lambda p: p.memory)


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]
