"""The reductions of one tile shared among its six workers: by columns, then by rows with a second compute set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.reduction.vertices import SUMS, Kind, Work, columns_apart, worker
from ipu_model.planner.steps import queued

WORKERS = 6


@dataclass
class Sets:
    """Vertices of a tile in worker bundles: a compute set, and a second one that reduces its partial results.

    `parts` counts the partial results between the two, which stay in memory until the second has run.
    """

    first: list[float] = field(default_factory=list[float])
    second: list[float] = field(default_factory=list[float])
    parts: int = 0

    @property
    def cycles(self) -> float:
        """Tile cycles of both."""
        return queued(self.first) + queued(self.second)

    @property
    def vertices(self) -> int:
        """Vertices of both compute sets on the tile."""
        return len(self.first) + len(self.second)


def on_workers(works: Sequence[Work], kind: Kind) -> Sets:
    """The vertices that `works` become on a tile."""
    sets = Sets()
    rest: list[Work] = []
    wide = sum(w.inner != 1 and w.out != 1 for w in works)
    share = max(1, (WORKERS - (len(works) - wide)) // wide) if wide else 1
    for work in works:
        if work.inner != 1 and work.rows == 1 and work.out != 1:
            for part in _dealt(columns_apart(work), min(share, work.out)):
                sets.first += worker(part, kind)
        elif work.inner != 1 and work.out != 1:
            _rows_then_runs(work, share, kind, sets)
        elif _narrow(work, kind):
            _widened(work, share, kind, sets)
        else:
            rest.append(work)
    free = WORKERS - len(sets.first)
    if len(rest) < free or not rest:
        _split_rows(rest, free, kind, sets)
    else:
        for part in _by_work(rest):
            sets.first += worker(part, kind)
    return sets


def _dealt(works: list[Work], parts: int) -> list[list[Work]]:
    bounds = [len(works) * i // parts for i in range(parts + 1)]
    return [works[a:b] for a, b in itertools.pairwise(bounds) if b > a]


def _rows_then_runs(work: Work, share: int, kind: Kind, sets: Sets) -> None:
    """Reduce the rows of the runs first, then each run."""
    width = work.out * work.inner
    fits = [i for i in range(1, share + 1) if work.out % i == 0 and width // i % kind.vector == 0]
    parts = max(fits, default=1)
    row = Work(width // parts, work.rows, 1, work.stride, work.pieces)
    sets.first += [bundles for _ in range(parts) for bundles in worker([row], kind)]
    after, each = kind.after(), work.out // parts
    sets.second += [b for _ in range(parts) for b in worker([Work(1, work.inner)] * each, after)]
    sets.parts += width


def _narrow(work: Work, kind: Kind) -> bool:
    """Two or three columns that fill no vector, whose rows can be taken several at once."""
    if not 1 < work.out < 4 or work.out % kind.vector == 0 or work.inner != 1:
        return False
    return work.values % _wide(work, kind) == 0 and (work.stride or work.out) == work.out


def _wide(work: Work, kind: Kind) -> int:
    return 4 if kind.source == "half" and work.out == 2 else work.out * kind.vector


def _widened(work: Work, share: int, kind: Kind, sets: Sets) -> None:
    wide = _wide(work, kind)
    rows = work.values // wide
    parts = share if rows > 4 * share else 1
    sets.first += [b for n in _even(rows, parts) for b in worker([Work(wide, n)], kind)]
    after = kind.after()
    sets.second += worker([Work(1, parts * wide // work.out, pieces=parts)] * work.out, after)
    sets.parts += parts * wide


def _even(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


def _step(work: Work, kind: Kind) -> int:
    """Elements that one loop iteration handles, by the library's estimate."""
    most = 2 * kind.result_vector if kind.operation in SUMS else kind.result_vector
    if work.out in (most >> i for i in range(most.bit_length())):
        return most
    return next(n for n in (8, 4, 2, 1) if n <= most and work.out % n == 0)


def _split_rows(works: Sequence[Work], free: int, kind: Kind, sets: Sets) -> None:
    """Give rows of the costliest reductions to idle workers."""
    splits = _row_splits(works, free, kind)
    for work, count in zip(works, splits, strict=True):
        rows = work.rows * work.inner
        pieces = 1 if rows <= 3 else min(rows // 2, cdiv(rows, cdiv(rows, count)))
        if count == 1 or pieces < 2:
            sets.first += worker([work], kind)
            continue
        for part in _even(rows, pieces):
            sets.first += worker([replace(work, rows=part, inner=1, pieces=min(work.pieces, part))], kind)
        sets.second += worker([Work(work.out, pieces)], kind.after())
        sets.parts += pieces * work.out


def _row_splits(works: Sequence[Work], free: int, kind: Kind) -> list[int]:
    effort = [cdiv(w.values, _step(w, kind)) for w in works]
    costs = [30.0 + e for e in effort]
    limits = [min(w.rows * w.inner // 2, (30 + e) / 4) for w, e in zip(works, effort, strict=True)]
    splits, free, before = [1] * len(works), free - len(works), max(costs, default=0.0)
    while free > 0:
        r = costs.index(max(costs)) if costs else -1
        if r < 0 or splits[r] + 1 >= limits[r]:
            break
        cost = 60.0 + effort[r] // (splits[r] + 1)
        if cost >= costs[r]:
            break
        costs[r], splits[r], free = cost, splits[r] + 1, free - 1
    return splits if costs and max(costs) < before else [1] * len(works)


def _by_work(works: Sequence[Work]) -> list[list[Work]]:
    """A list for each worker: runs of alike reductions, else in order of size, each to the least loaded worker."""
    effort = [w.values for w in works]
    mean = sum(effort) / len(effort)
    if all(abs(e - mean) <= max(8.0, 0.1 * mean) for e in effort):
        sizes, at = _even(len(works), WORKERS), 0
        found: list[list[Work]] = []
        for size in sizes:
            found.append(list(works[at : at + size]))
            at += size
        return [part for part in found if part]
    lists: list[list[Work]] = [[] for _ in range(WORKERS)]
    loads = [0] * WORKERS
    for work in sorted(works, key=lambda w: w.values):
        least = loads.index(min(loads))
        lists[least].append(work)
        loads[least] += work.values
    return [part for part in lists if part]
