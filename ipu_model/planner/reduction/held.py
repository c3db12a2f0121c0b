"""The elements of a linearly mapped tensor on each tile: columns, and the groups of columns that become reductions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.mapping import LINEAR_MINIMUM, split_regions
from ipu_model.planner.reduction.vertices import SIZES, SUMS, Kind, Work
from ipu_model.planner.reduction.workers import WORKERS

Dim = tuple[int, bool]  # size, and whether it is reduced
Box = tuple[int, int, int]  # first column, columns, values of each


@dataclass(frozen=True)
class View:
    """The tensor with neighbouring dimensions merged, so that reduced and kept dimensions alternate."""

    dims: tuple[Dim, ...]

    @staticmethod
    def of(shape: Sequence[int], reduced: Sequence[int]) -> View:
        """The view of a tensor of `shape` whose dimensions `reduced` are summed; dimensions of size 1 drop out."""
        named = [(n, d in reduced) for d, n in enumerate(shape) if n > 1]
        merged = [(math.prod(n for n, _ in part), flag) for flag, part in _runs(named)]
        return View(tuple(merged) or ((1, True),))

    @property
    def elements(self) -> int:
        """Elements of the tensor."""
        return math.prod(n for n, _ in self.dims)

    @property
    def columns(self) -> int:
        """Elements of the result: each is reduced from one column."""
        return math.prod(n for n, reduced in self.dims if not reduced)

    @functools.cached_property
    def _strides(self) -> list[tuple[int, int, int, bool]]:
        """For each dimension its size, the elements and the columns of one step along it, and whether it is reduced."""
        found: list[tuple[int, int, int, bool]] = []
        elements, columns = 1, 1
        for n, reduced in reversed(self.dims):
            found.append((n, elements, columns, reduced))
            elements *= n
            columns *= 1 if reduced else n
        return found[::-1]

    def boxes(self, start: int, end: int) -> list[Box]:
        """A stretch of memory as boxes, each of whose columns lie side by side."""
        strides = self._strides
        found: list[Box] = []
        while start < end:
            # as many whole steps as fit of the outermost dimension that has one starting here
            column, at = 0, start
            for n, inner, kept, reduced in strides:
                step, at = divmod(at, inner)
                column += 0 if reduced else step * kept
                if at == 0 and start + inner <= end:
                    count = min((end - start) // inner, n - step)
                    values = inner // kept
                    found.append((column, kept, values * count) if reduced else (column, kept * count, values))
                    start += count * inner
                    break
        return found

    def stretches(self, starts: Sequence[int]) -> tuple[list[list[Box]], np.ndarray, np.ndarray]:
        """The forms of boxes that stretches between neighbours of `starts` take, and the form and column of each.

        Stretches that begin alike within the innermost step that holds the whole of them have equal boxes, moved by
        the steps before.
        """
        at, length = np.array(starts[:-1]), np.diff(starts)
        column, inside = np.zeros_like(at), np.ones(len(at), dtype=bool)
        for n, inner, kept, reduced in self._strides:
            inside &= at + length <= n * inner
            step = np.where(inside, at // inner, 0)
            at = at - step * inner
            column += 0 if reduced else step * kept
        _, first, form = np.unique(at * (length.max(initial=0) + 1) + length, return_index=True, return_inverse=True)
        order = np.argsort(first)  # forms in the order in which tiles have them
        forms = [self.boxes(int(at[i]), int(at[i] + length[i])) for i in first[order]]
        return forms, np.argsort(order)[form], column

    def columns_at(self, elements: np.ndarray) -> np.ndarray:
        """The column of each of some elements of the tensor."""
        at, column, step = elements, np.zeros(len(elements), dtype=np.int64), 1
        for n, reduced in reversed(self.dims):
            if not reduced:
                column += at % n * step
                step *= n
            at = at // n
        return column


def _runs(named: Sequence[Dim]) -> list[tuple[bool, list[Dim]]]:
    return [(flag, list(part)) for flag, part in itertools.groupby(named, key=lambda d: d[1])]


def linear_starts(elements: int, data: str, tiles: int) -> list[int]:
    """Where the share of each used tile begins, and the end: whole vectors, at least 128 bytes on a tile."""
    size = SIZES[data]
    grain = 8 // size
    used, _ = split_regions(elements, grain, tiles, LINEAR_MINIMUM // size)
    grains = cdiv(elements, grain)
    return [min(elements, i * grains // used * grain) for i in range(used + 1)]


@dataclass(frozen=True)
class Group:
    """Columns of a tile whose values lie alike, one after another: one reduction."""

    columns: np.ndarray
    work: Work


def groups(columns: np.ndarray, lengths: Sequence[int]) -> list[list[Group]]:
    """Equal columns of stretches of memory, given the column of each element and the length of each stretch.

    Many stretches are short, so all are sorted at once: what tells columns of different stretches apart are names.
    """
    ends = np.cumsum(lengths)
    apart = np.repeat(np.arange(len(ends)) * (columns.max(initial=0) + 1), lengths)
    starts, runs = _equal_runs(columns + apart)
    order = np.argsort((columns + apart)[starts], kind="stable")
    starts, runs = starts[order], runs[order]
    first, count = _equal_runs((columns + apart)[starts])
    # hash: columns whose runs have equal lengths at equal distances have equal sums of mixed numbers
    mixed = _mixed(starts - np.repeat(starts[first], count)) * ODD + _mixed(runs)
    form = np.add.reduceat(_mixed(mixed), first)
    by_place = np.argsort(starts[first], kind="stable")
    first, form, count = first[by_place], form[by_place], count[by_place]
    begin = starts[first]
    stretch = np.searchsorted(ends, begin, side="right")
    joins = (form[1:] == form[:-1]) & (count[1:] == count[:-1]) & (stretch[1:] == stretch[:-1])
    joins &= begin[1:] == begin[:-1] + runs[first[:-1]]
    edges = [0, *(np.flatnonzero(~joins) + 1).tolist(), len(begin)]
    names, home = columns[begin], stretch.tolist()
    found: list[list[Group]] = [[] for _ in ends]
    for a, b in itertools.pairwise(edges):
        part = slice(first[a], first[a] + count[a])
        found[home[a]] += _group(names[a:b], starts[part], runs[part])
    return found


def _equal_runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where runs of equal values start, and their lengths."""
    edges = np.ones(len(values) + 1, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=edges[1:-1])
    bounds = np.flatnonzero(edges)
    return bounds[:-1], bounds[1:] - bounds[:-1]


ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers spread over 64 bits, so that sums of different ones differ."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * ODD
    return (mixed ^ (mixed >> np.uint64(29))) * ODD


def _group(names: np.ndarray, begin: np.ndarray, length: np.ndarray) -> list[Group]:
    if length.min() != length.max():  # runs of several lengths: every column by itself
        pieces = len(begin)
        return [Group(names[i : i + 1], Work(1, int(length.sum()), pieces=pieces)) for i in range(len(names))]
    steps, inner, rows = begin[1:] - begin[:-1], int(length[0]), len(begin)
    regular = rows < 3 or steps.min() == steps.max()
    width = len(names) * inner
    stride = int(steps[0]) if regular and rows > 1 else width
    # rows that follow each other without a gap are one piece of memory
    pieces = 1 if regular else 1 + int(np.count_nonzero(steps != width))
    return [Group(names, Work(len(names), rows, inner, stride, pieces))]


def cut_for_workers(found: Sequence[Group], kind: Kind) -> list[Group]:
    """Wide groups cut by columns, side by side, into as many parts as there are free workers."""
    wide = [g for g in found if g.work.inner == 1 and g.work.out != 3]
    others = [g for g in found if not (g.work.inner == 1 and g.work.out != 3)]
    total = sum(g.work.out for g in wide)
    if not total:
        return others
    grain = 2 * kind.vector if kind.operation in SUMS else kind.vector
    grains = cdiv(total, grain)
    parts, _ = split_regions(total, grain, max(1, WORKERS - len(others)))
    cuts = {min(total, i * grains // parts * grain) for i in range(parts + 1)}
    made: list[Group] = []
    at = 0
    for group in wide:
        inside = sorted({at, at + group.work.out} | {c for c in cuts if at < c < at + group.work.out})
        for a, b in itertools.pairwise(inside):
            work = group.work
            apart = work.pieces if work.pieces == 1 or b - a == work.out else work.rows
            narrow = Work(b - a, work.rows, 1, work.stride or work.out, apart)
            made.append(Group(group.columns[a - at : b - at], narrow))
        at += group.work.out
    return made + others


def common_order(names: np.ndarray, following: np.ndarray) -> dict[int, int]:
    """For each column the column that follows it in a common order, chosen by the neighbours in groups of all tiles.

    Neighbours (a name and the one after it) are linked when neither has a partner yet; a link that would close a circle
    is left out.
    """
    after: dict[int, int] = {}
    before: dict[int, int] = {}
    # a pair that was refused once, or linked, is refused again
    _, first = np.unique(names * (following.max(initial=0) + 1) + following, return_index=True)
    first.sort()
    for a, b in zip(names[first].tolist(), following[first].tolist(), strict=True):
        if a in after or b in before:
            continue
        end = b
        while end in after:
            end = after[end]
        if end != a:
            after[a], before[b] = b, a
    return after
