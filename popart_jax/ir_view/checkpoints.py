"""Chooses the checkpoints of standard recomputation: which forward results are kept for the backward pass.

The forward ops, in order, are cut into segments. Results that cross a cut are kept; the rest of a segment is
recomputed just before its backward ops run, so at any time memory holds all checkpoints and one segment. The last
segment ends where the backward pass begins and is never recomputed. The method is the budgeted one of Chen et al.,
"Training Deep Nets with Sublinear Memory Cost" (2016), with each cut where the fewest bytes cross it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_BUDGETS, _BUDGET_RATIO = 64, 0.92  # the last is a two-hundredth of all, as for a chain of 10,000 equal ops


class Result(NamedTuple):
    """The result of one op: its size in bytes, and the index of the last op that reads it (its own if none does)."""

    size: int
    last_read: int


def checkpoints(results: Sequence[Result]) -> frozenset[int]:
    """Indices of the forward ops, with a result each, whose results are kept for the lowest peak of live memory."""
    crossing = _crossing(results)
    total = sum(r.size for r in results)
    plans = (_cuts(results, crossing, total * _BUDGET_RATIO**step) for step in range(_BUDGETS))
    best = min(plans, key=lambda cuts: (_peak(results, cuts), len(cuts)))
    return _kept(results, best)


def _crossing(results: Sequence[Result]) -> list[int]:
    """Bytes that are still read after each op."""
    change = [0] * (len(results) + 1)
    for place, result in enumerate(results):
        change[place] += result.size
        change[result.last_read] -= result.size
    return list(accumulate(change))[: len(results)]


def _cuts(results: Sequence[Result], crossing: Sequence[int], budget: float) -> list[int]:
    """Indices of ops to cut behind, so that no segment of several ops has more than `budget` bytes."""
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


def _kept(results: Sequence[Result], cuts: Sequence[int]) -> frozenset[int]:
    """Indices of the results that are read behind the next cut, and of all in the last segment."""
    ends = [*cuts, len(results)]
    behind = cuts[-1] if cuts else -1
    return frozenset(p for p, r in enumerate(results) if p > behind or r.last_read > ends[bisect_left(ends, p)])


def _peak(results: Sequence[Result], cuts: Sequence[int]) -> int:
    behind = cuts[-1] if cuts else -1
    staying = _kept(results, cuts)
    stays = sum(results[p].size for p in staying if p <= behind)
    stretches = [0] * (len(cuts) + 1)
    for place, result in enumerate(results):
        if place > behind or place not in staying:
            stretches[bisect_left(cuts, place)] += result.size
    return stays + max(stretches)
