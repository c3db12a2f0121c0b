"""Search over all parallelisation plans of a number of chips for the best that fit."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from ipu_model.scaling.interconnect import Interconnect
from ipu_model.scaling.plan import Batches, Plan, Spread, priced
from ipu_model.scaling.work import Block, Work

WorkOf = Callable[[int], Work]
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
    alone, batches = Interconnect(()), Batches(accumulation)
    return priced(work, [work.blocks], Spread(1, 1, 1), alone, batches, recompute=False).throughput


def best_plans(
    work_of: WorkOf | Sequence[WorkOf], chips: int, links: Interconnect, memory: float, accumulation: int
) -> tuple[list[Plan], list[Plan]]:
    """Plans for a number of chips.

    Parameters
    ----------
    work_of : callable, or several
        The program for a number of tensor-parallel chips, which decides which blocks can be divided. Of several, which
        differ in the size of their micro-batch, each spread takes the best.
    chips : int
    links : Interconnect
    memory : float
        Bytes of a chip.
    accumulation : int
        Micro-batches of a step on each replica; of the first program where there are several. A step of the others has
        as many samples.

    Returns
    -------
    fitting, others : lists of Plan
        Plans that fit, by throughput, and the others, by the memory they need. Where a training step does not fit, its
        stages recompute, or its pipeline has fewer micro-batches in flight, whichever is faster, or both.

    Raises
    ------
    ValueError
        The samples of a step are no whole number of some micro-batch.
    """
    programs = [work_of] if callable(work_of) else list(work_of)
    counts = _micro_batches([program(1).samples for program in programs], accumulation)
    one = max(single(program(1), count) for program, count in zip(programs, counts, strict=True))
    found: list[Plan] = []
    for spread in spreads(chips, min(len(program(1).blocks) for program in programs)):
        ways = [
            way
            for program, count in zip(programs, counts, strict=True)
            for way in _ways(program(spread.tensor), spread, links, memory, count)
        ]
        if ways:
            plan = min(ways, key=lambda p: (p.memory > memory, p.memory if p.memory > memory else -p.throughput))
            found.append(dataclasses.replace(plan, efficiency=plan.throughput / (chips * one)))
    fitting = sorted((p for p in found if p.memory <= memory), key=lambda p: -p.throughput)
    return fitting, sorted((p for p in found if p.memory > memory), key=lambda p: p.memory)


def _micro_batches(samples: Sequence[float], accumulation: int) -> list[int]:
    """Micro-batches of a step of each program, as many as hold the samples of a step of the first."""
    whole = samples[0] * accumulation
    for each in samples:
        if whole % each:
            raise ValueError(
                f"a step of {whole:g} samples on each replica is no whole number of micro-batches of {each:g}"
            )
    return [round(whole / each) for each in samples]


def _ways(work: Work, spread: Spread, links: Interconnect, memory: float, count: int) -> Iterator[Plan]:
    """Plans of one spread: as it is; where that does not fit and it trains, with less memory in several ways."""
    if spread.tensor > 1 and not any(b.divides for b in work.blocks):
        return
    stages = in_stages(work.blocks, spread.pipeline, spread.tensor)

    def plan(recompute: bool, in_flight: int = 0) -> Plan:
        return priced(work, stages, spread, links, Batches(count, in_flight), recompute)

    whole = plan(recompute=False)
    yield whole
    if whole.memory <= memory or not work.training:
        return
    for recompute in (False, True):
        # memory grows with the micro-batches in flight, and so does the rate: the most that fit are best
        most = bisect.bisect_right(range(1, whole.in_flight + 1), memory, key=lambda n: plan(recompute, n).memory)
        yield plan(recompute, max(1, most))


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]
