"""Cycles of the pooling vertex: the planner's estimate, and the actual cycles on the tiles of a plan."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_vertices import slowest_fastest
from ipu_model.planner.pooling.params import PoolParams

WORKERS = 6
Meets = tuple[tuple[frozenset[int], ...], ...]


@dataclass(frozen=True)
class Unpacking:
    """Bundles for unpacking a pointer, by what it points to."""

    out: int
    source: int
    start: int
    work: int


Count = int | np.ndarray
"""One number, or that of each of several splits."""
PLANNER = Unpacking(2, 2, 2, 2)
SHORT_POINTERS = Unpacking(1, 1, 2, 2)
LONG_POINTERS = Unpacking(0, 0, 0, 5)


def _inner(kind: str, backward: bool, length: Count) -> Count:
    """Bundles of one vector of channels over a run of `length` positions."""
    if backward and kind == "max":
        return 7 + 5 * (length - 1)
    return (4 if kind == "max" else 5) + 3 * (length - 1)


def entry(kind: str, backward: bool, groups: Count, vectors: int, length: Count) -> Count:
    """Bundles of one kernel position over a piece of a row."""
    between = 6 if backward else 4
    return 20 + groups * (2 + vectors * (3 + _inner(kind, backward, length))) + (groups - 1) * between + 3


def around(kind: str, backward: bool, groups: Count, zeroed: Count, unpacking: Unpacking) -> Count:
    """Bundles of a worker beside its rows; `zeroed` vectors of each group are initialised."""
    largest = 6 + unpacking.out + unpacking.source if backward and kind == "max" else 0
    first = 17 + unpacking.out + (4 + zeroed) * groups + 6 + unpacking.start
    return first + 2 + (1 if kind == "max" else 2) + largest + 6 + 2 * unpacking.work + 1


def zeroed_vectors(positions: Count, vectors: int) -> Count:
    """Vectors that a worker initialises; the remainder is unsigned, so that a negative one gives everybody one more."""
    each = positions * vectors // WORKERS
    return each + (positions != WORKERS * each)


def planned(
    p: PoolParams, batch: np.ndarray, groups: np.ndarray, outs: Sequence[np.ndarray], vectors: int, backward: bool
) -> np.ndarray:
    """Tile cycles as the planner counts them: every kernel position for every piece of a row."""
    width = outs[-1]
    rows = batch * np.prod(outs[:-1], axis=0)
    along = p.stride[-1] if backward else 1

    def row(n: np.ndarray) -> np.ndarray:
        length = np.maximum(-(-n // along), 1)
        return np.where(n > 0, 13 + p.windows * entry(p.kind, backward, groups, vectors, length) + 2, 0)

    slow, _ = slowest_fastest(rows, width, row)
    zeroed = zeroed_vectors(rows * width // vectors, vectors)
    return 13 + WORKERS * (around(p.kind, backward, groups, zeroed, PLANNER) + slow)


def hits(p: PoolParams, d: int, backward: bool) -> tuple[frozenset[int], ...]:
    """For each position of a dimension the kernel positions that meet real data there."""
    return _hits(p.field[d], p.out[d], p.kernel[d], p.stride[d], p.pad_lower[d], backward)


@functools.lru_cache(maxsize=256)
def _hits(field: int, out: int, kernel: int, stride: int, pad: int, backward: bool):
    if not backward and not pad and (out - 1) * stride + kernel <= field:
        return (frozenset(range(kernel)),) * out
    if not backward:
        return tuple(frozenset(k for k in range(kernel) if 0 <= o * stride + k - pad < field) for o in range(out))
    return tuple(
        frozenset(k for k in range(kernel) if (i + pad - k) % stride == 0 and 0 <= (i + pad - k) // stride < out)
        for i in range(field)
    )


def actual(kind: str, meets: Meets, batch: int, groups: int, vectors: int, backward: bool, unpacking: Unpacking) -> int:
    """Tile cycles of a part: only kernel positions that meet real data, and only rows that have any.

    `meets` are, for each dimension and position of the part, the kernel positions that `hits` gives.
    """
    width = len(meets[-1])
    others = [math.prod(len(each) for each in row) for row in itertools.product(*meets[:-1])] * batch
    total = len(others) * width
    worst = 0
    for i in range(WORKERS):
        begin, end = i * total // WORKERS, (i + 1) * total // WORKERS
        spent = 0
        while begin < end:
            row, x = divmod(begin, width)
            stop = min(width, x + end - begin)
            lengths = _lengths(meets[-1][x:stop])
            if others[row] and lengths:
                entries = sum(entry(kind, backward, groups, vectors, n) for n in lengths)
                spent += 13 + others[row] * entries + 2
            begin += stop - x
        worst = max(worst, spent)
    return 13 + WORKERS * int(around(kind, backward, groups, zeroed_vectors(total, vectors), unpacking) + worst)


def _lengths(met: Sequence[frozenset[int]]) -> list[int]:
    """Positions of a piece of a row that each kernel position meets, those that meet none left out."""
    counts: dict[int, int] = {}
    for each in met:
        for k in each:
            counts[k] = counts.get(k, 0) + 1
    return list(counts.values())
