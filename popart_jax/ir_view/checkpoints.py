"""Which results of the forward pass stay until the backward pass when the others are computed again from them.

The forward ops, in order, are cut into stretches. What crosses a cut stays; the rest of a stretch is computed again
just before its backward ops run, so at any time the memory holds all that stays and one stretch. The last stretch ends
where the backward pass begins and is never computed again. The method is the budgeted one of Chen et al., "Training
Deep Nets with Sublinear Memory Cost" (2016), with the cut of each stretch where the least crosses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_BUDGETS, _FINER = 64, 0.92  # the last is a two-hundredth of all, as for a chain of 10,000 equal ops


class Result(NamedTuple):
    """What one op makes: its size in bytes, and the place of the last op that reads it (its own if none does)."""

    size: int
    last_read: int


def checkpoints(results: Sequence[Result]) -> frozenset[int]:
    """Places of the ops whose results stay, so that the peak of live memory is least.

    Parameters
    ----------
    results : sequence of Result
        One per forward op, in order.
    """
    crossing = _crossing(results)
    total = sum(r.size for r in results)
    plans = (_cuts(results, crossing, total * _FINER**step) for step in range(_BUDGETS))
    best = min(plans, key=lambda cuts: (_peak(results, cuts), len(cuts)))
    return _staying(results, best)


def _crossing(results: Sequence[Result]) -> list[int]:
    """Bytes that are still read after each place."""
    change = [0] * (len(results) + 1)
    for place, result in enumerate(results):
        change[place] += result.size
        change[result.last_read] -= result.size
    return list(accumulate(change))[: len(results)]


def _cuts(results: Sequence[Result], crossing: Sequence[int], budget: float) -> list[int]:
    """Places behind which to cut so that no stretch has more than `budget` bytes, where one op alone has not."""
    cuts: list[int] = []
    first = place = 0
    live = 0
    while place < len(results):
        live += results[place].size
        if live > budget and place > first:
            cut = min(range(first, place), key=lambda p: (crossing[p], -p))
            cuts.append(cut)
            first = place = cut + 1
            live = 0
        else:
            place += 1
    return cuts


def _staying(results: Sequence[Result], cuts: Sequence[int]) -> frozenset[int]:
    """Places of results that are read behind the first cut after them, and of the last stretch."""
    ends = [*cuts, len(results)]
    behind = cuts[-1] if cuts else -1
    return frozenset(p for p, r in enumerate(results) if p > behind or r.last_read > ends[bisect_left(ends, p)])


def _peak(results: Sequence[Result], cuts: Sequence[int]) -> int:
    behind = cuts[-1] if cuts else -1
    staying = _staying(results, cuts)
    stays = sum(results[p].size for p in staying if p <= behind)
    stretches = [0] * (len(cuts) + 1)
    for place, result in enumerate(results):
        if place > behind or place not in staying:
            stretches[bisect_left(cuts, place)] += result.size
    return stays + max(stretches)
