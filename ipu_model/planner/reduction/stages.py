"""Stages that combine partial results: intermediate ones while too many tiles hold a column, then the output stage."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.mapping import split_regions
from ipu_model.planner.reduction.vertices import SIZES, SUMS, Kind, Work
from ipu_model.planner.reduction.workers import WORKERS, on_workers
from ipu_model.planner.steps import queued

PIECE_ELEMENTS = 64  # an intermediate stage gives a tile at least so many partial results
SYNC = 126.0  # the library's estimate of a sync in cycles, used when it places an output

Interval = tuple[int, int]  # columns from, to


@dataclass(frozen=True)
class Stage:
    """An exchange and the compute sets after it."""

    name: str
    received: float  # bytes that the busiest tile receives
    compute: float  # tile cycles of all compute sets on the slowest tile: tiles do not wait for each other between them
    held: np.ndarray  # bytes that are not always live on each tile
    state: np.ndarray  # vertices of each tile
    messages: int  # pairs of source and destination tile
    tiles: int
    sets: tuple[float, float] = (0.0, 0.0)  # the longest of each compute set, for programs that wait between them
    received_by_all: float = 0.0  # bytes that all tiles receive together
    balance: float = 1.0  # mean compute of the tiles with work over that of the slowest


@dataclass(frozen=True)
class Partials:
    """Partial results over the tiles: rows (from, to) of columns of which a tile holds one, for all tiles that do."""

    edges: np.ndarray
    tiles: int
    columns: int

    @staticmethod
    def of(intervals: Iterable[Sequence[Interval]], columns: int) -> Partials:
        """Those of tiles that hold these columns each."""
        held = [each for each in intervals if each]
        edges = np.array([edge for each in held for edge in each], dtype=np.int64).reshape(-1, 2)
        return Partials(edges, len(held), columns)

    @property
    def data(self) -> int:
        """Partial results on all tiles together."""
        return int((self.edges[:, 1] - self.edges[:, 0]).sum())

    def cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Boundaries of the columns where the set of holders changes, and holders of each stretch between."""
        bounds = np.unique(np.append(self.edges, [0, self.columns]))
        at = np.searchsorted(bounds, self.edges)
        begun, ended = (np.bincount(at[:, side], minlength=len(bounds)) for side in (0, 1))
        return bounds, np.cumsum(begun - ended)[:-1]


def enough(partials: Partials, sources: int, tiles: int) -> bool:
    """Whether the output stage is next."""
    few = sources < 2 * math.sqrt(tiles) and partials.tiles > 3 * tiles / 4
    return few or partials.data <= PIECE_ELEMENTS * partials.columns


def intermediate(partials: Partials, kind: Kind, tiles: int, start: int) -> tuple[Stage, Partials]:
    """Cuts columns into pieces and the tiles that hold them into blocks, one block to a tile."""
    bounds, holders = partials.cuts()
    data, columns = partials.data, partials.columns
    grain = 2 * kind.vector if kind.operation in SUMS else kind.vector
    together = max(1, math.isqrt(data // columns))
    least = max(grain, int(np.diff(bounds).min()) // grain // together * grain)
    pieces = _pieces(bounds, holders, columns, grain, tiles, least)
    ideal = max(1, data // tiles)
    work: dict[int, list[Work]] = {}
    columns_of: dict[int, list[Interval]] = {}
    at = start if len(pieces) > 1 else 0
    for a, b, count in pieces:
        for rows in blocks(count, b - a, ideal):
            work.setdefault(at % tiles, []).append(Work(b - a, rows))
            columns_of.setdefault(at % tiles, []).append((a, b))
            at += 1
    after = Partials.of(columns_of.values(), columns)
    return _run("Intermediate", work, kind, tiles), after


def _pieces(
    bounds: np.ndarray, holders: np.ndarray, columns: int, grain: int, parts: int, least: int
) -> list[tuple[int, int, int]]:
    """Columns dealt in order, cut again where their holders change: from, to, tiles that hold them."""
    grains = cdiv(columns, grain)
    used, _ = split_regions(columns, grain, parts, least)
    edges = np.unique(np.append(bounds, [min(columns, i * grains // used * grain) for i in range(used + 1)]))
    counts = holders[np.searchsorted(bounds, edges[:-1], side="right") - 1]
    return [(int(a), int(b), int(k)) for (a, b), k in zip(itertools.pairwise(edges), counts, strict=True) if k]


def blocks(sources: int, width: int, ideal: int) -> list[int]:
    """Sources of a piece in blocks of rows."""
    parts = max(1, sources * width // ideal)
    if sources * width // parts < PIECE_ELEMENTS:
        parts = max(1, sources * width // PIECE_ELEMENTS)
    if sources // parts < 2:
        parts = max(1, sources // 2)
    rows = max(2, cdiv(sources, parts))
    return [min(rows, sources - at) for at in range(0, sources, rows)]


def output(partials: Partials, kind: Kind, tiles: int, starts: Sequence[int] | None, sent: int) -> Stage:
    """Brings the last partial results to the tiles of the output and adds them up there.

    `starts` tells where the output of each tile begins, and the end; dealt out in order when nobody decided it. `sent`
    are the bytes of an output element.
    """
    bounds, holders = partials.cuts()
    places = list(starts) if starts is not None else _dealt(partials.columns, kind, tiles)
    if starts is not None and not _at_destination(partials, places, int(holders.max()), kind, tiles, sent):
        places = _dealt(partials.columns, kind, tiles)
    work: dict[int, tuple[Work, ...]] = {}
    grain = 2 * kind.vector if kind.operation in SUMS else kind.vector
    edges, counts = bounds.tolist(), holders.tolist()
    alone = bool((np.diff(partials.edges) == 1).all())
    for tile, (a, b) in enumerate(itertools.pairwise(places)):
        if b > a:
            work[tile] = _on_tile(a, b, edges, counts, grain, alone)
    return _run("Output", work, kind, tiles)


def _dealt(columns: int, kind: Kind, tiles: int) -> list[int]:
    vector = kind.vector
    used, _ = split_regions(columns, vector, tiles, 4 * vector)
    grains = cdiv(columns, vector)
    return [min(columns, i * grains // used * vector) for i in range(used + 1)]


def _at_destination(partials: Partials, places: Sequence[int], sources: int, kind: Kind, tiles: int, sent: int) -> bool:
    """Whether reducing on the output's tiles is estimated faster than reducing spread evenly and copying the result."""
    most = max(b - a for a, b in itertools.pairwise(places))
    even = 8 * cdiv(cdiv(partials.columns, 8), tiles)
    size, vector = SIZES[kind.source], kind.vector
    there = most * size / 4 + sources * cdiv(most, vector) + SYNC
    balanced = even * sources * size / 4 + sources * cdiv(even, vector) + most * sent / 4 + 2 * SYNC
    return there <= balanced


def _on_tile(a: int, b: int, bounds: list[int], holders: list[int], grain: int, alone: bool) -> tuple[Work, ...]:
    """Outputs of a tile cut where their holders change, then for the workers."""
    first, last = bisect.bisect_right(bounds, a), bisect.bisect_left(bounds, b)
    shape = tuple(bound - a for bound in bounds[first:last])
    return _cut(b - a, shape, tuple(holders[first - 1 : last]), grain, alone)


@functools.lru_cache(maxsize=4096)
def _cut(width: int, inside: tuple[int, ...], counts: tuple[int, ...], grain: int, alone: bool) -> tuple[Work, ...]:
    grains = cdiv(width, grain)
    parts, _ = split_regions(width, grain, WORKERS)
    edges = sorted({0, width, *inside, *(min(width, i * grains // parts * grain) for i in range(parts + 1))})
    sources = [counts[bisect.bisect_right(inside, edge)] for edge in edges[:-1]]
    widths = [y - x for x, y in itertools.pairwise(edges)]
    one_buffer = len(set(sources)) == 1 and all(w % grain == 0 for w in widths)
    return tuple(
        Work(w, k, stride=width if one_buffer else w, pieces=1 if one_buffer else k, alone=alone)
        for w, k in zip(widths, sources, strict=True)
    )


def _run(name: str, work: Mapping[int, Sequence[Work]], kind: Kind, tiles: int) -> Stage:
    """The stage that does `work` on each tile; tiles with equal work are priced once."""
    size, result = SIZES[kind.source], SIZES[kind.result]
    alike: dict[tuple[Work, ...], list[int]] = {}
    for tile, works in work.items():
        alike.setdefault(tuple(works), []).append(tile)
    received, held, state = np.zeros(tiles), np.zeros(tiles), np.zeros(tiles)
    compute, total, messages, longest = 0.0, 0.0, 0, (0.0, 0.0)
    for works, members in alike.items():
        sets = on_workers(works, kind)
        compute, total = max(compute, sets.cycles), total + sets.cycles * len(members)
        longest = (max(longest[0], queued(sets.first)), max(longest[1], queued(sets.second)))
        received[members] = sum(w.values for w in works) * size
        held[members] = received[members[0]] + (sum(w.out for w in works) + sets.parts) * result
        state[members] = sets.vertices
        messages += max(w.rows for w in works) * len(members)
    balance = total / (len(work) * compute) if compute else 1.0
    return Stage(
        name, float(received.max()), compute, held, state, messages, len(work), longest, float(received.sum()), balance
    )
