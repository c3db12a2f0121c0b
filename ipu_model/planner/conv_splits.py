"""Combinations of splits of a convolution's dimensions, pruned by a quick lower bound of their cycles."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_grid import SIZES, Grid, product
from ipu_model.planner.conv_params import cdiv

Array = np.ndarray
MOST_COMBINATIONS = 5_000_000  # of splits of one problem, before those that need too many tiles are dropped
ROUNDING = 1e-9  # of sums in another order than the search's
AT_ONCE = 100_000  # combinations that are bounded at a time


@functools.cache
def useful_splits(n: int, most: int) -> Array:
    """Rows (split, share) for a dimension of size `n`: the smallest split for each distinct share, at most `most`."""
    rows, s = [], 1
    while s <= min(n, most):
        share = cdiv(n, s)
        rows.append((s, share))
        if share == 1:
            break
        s = cdiv(n, share - 1)
    return np.array(rows, dtype=np.int64).T


def thinned(lists: list[Array]) -> list[Array]:
    """The lists with fewer values in the longest ones, where all combinations would be too many to price."""
    most = 64
    while math.prod(a.shape[1] for a in lists) > MOST_COMBINATIONS and most > 8:
        lists = [a if a.shape[1] <= most else a[:, np.linspace(0, a.shape[1] - 1, most).astype(int)] for a in lists]
        most -= 8
    return lists


def combinations(
    lists: list[Array], sizes: tuple[int, ...], tiles: int, limit: float, others: int = 1, further: int = 1
) -> list[Array] | None:
    """All combinations of splits that use at most `tiles` tiles and may stay below `limit` multiplies per tile.

    `others` is the product of the sizes of dimensions that are not listed, `further` that of their largest splits.
    """
    order = sorted((i for i, a in enumerate(lists) if a.shape[1] > 1), key=lambda i: lists[i].shape[1])
    fixed = [i for i, a in enumerate(lists) if a.shape[1] == 1]
    if any(a.shape[1] == 0 for a in lists):
        return None
    loss0 = math.prod(float(lists[i][0, 0] * lists[i][1, 0] / sizes[i]) for i in fixed)
    used, loss = np.full(1, math.prod(int(lists[i][0, 0]) for i in fixed)), np.full(1, loss0)
    whole, steps = math.prod(sizes) * others, []
    further *= math.prod(int(lists[i][0].max()) for i in order)  # parts that the dimensions to come may have
    for i in order:
        split, share = lists[i]
        further //= int(split.max())
        new_used = used[:, None] * split[None, :]
        new_loss = loss[:, None] * (split * share / sizes[i])[None, :]
        # work of the fullest tile = product of shares = size * loss / used
        least = whole * new_loss / np.minimum(new_used * further, tiles)
        row, column = np.nonzero((new_used <= tiles) & (least <= limit))
        steps.append((i, row, column))
        used, loss = new_used[row, column], new_loss[row, column]
    if len(used) == 0:
        return None
    index = [np.zeros(len(used), dtype=np.intp)] * len(lists)
    origin = np.arange(len(used))
    for i, row, column in reversed(steps):
        index[i], origin = column[origin], row[origin]
    return index


@dataclass(frozen=True)
class Quick:
    """Constants of a vertex for the quick lower bound of cycles.

    Attributes
    ----------
    beside : float
        Least cycles beside arithmetic, however the problem is split.
    unit : float
        Cycles of arithmetic for each product of shares.
    copied : float
        Least cycles of rearranging operands on one tile alone.
    start : float
        Cycles of each weight beside its multiplies.
    """

    beside: float
    unit: float
    copied: float
    start: float

    def factors(self, spatial: Grid) -> Array:
        """The factors of the bound that depend on field, batch, groups and kernel, in the order of `_channels`."""
        size, rate, serial = SIZES[spatial.v.data], spatial.machine.exchange_bytes, spatial.serial
        parts = product(spatial.splits(d) for d in range(spatial.p.dims + 1))
        weights = serial * spatial.weights * ((1 - 1 / parts) * size / rate + self.start) + self.unit * spatial.work()
        results = serial * spatial.parts * spatial.partial_bytes / rate
        return np.stack(
            [serial * spatial.inputs * size / rate, weights, results, serial * self.copied / spatial.used], 1
        )


def promising(grid: Grid, sizes: tuple[int, ...], tiles: int, limit: float, quick: Quick) -> tuple[Grid, Array] | None:
    """The splits of a problem whose quick bound is within `limit`, and that bound; None when there are none.

    `grid` has the lists of splits and no rows yet. The bound is a sum of products of one factor that depends on field,
    batch, groups and kernel (`_spatial`) and one that depends on the channels (`_channels`): one matrix product.
    """
    outs, ins = grid.lists[grid.p.dims + 1], grid.lists[grid.p.dims + 2]
    spatial = _spatial(grid, sizes, tiles, (limit - quick.beside) / quick.unit)
    if spatial is None or 0 in (outs.shape[1], ins.shape[1]):
        return None
    out, in_ = np.divmod(np.arange(outs.shape[1] * ins.shape[1]), ins.shape[1])
    channels, used = _channels(grid, outs[:, out], ins[:, in_]), outs[0, out] * ins[0, in_]
    factors = quick.factors(spatial)
    # if every tile is used, the shares of the channels are as small as possible
    shared = sizes[grid.p.dims + 1] * sizes[grid.p.dims + 2] / tiles
    least = (
        factors[:, 1] * np.maximum(1.0, shared * spatial.used) + factors[:, 2] + factors[:, 3] * spatial.used / tiles
    )
    likely = spatial.keep(least <= limit * (1 + ROUNDING))
    if likely is None:
        return None
    spatial, factors = likely, factors[least <= limit * (1 + ROUNDING)]
    found = []
    for start in range(0, len(factors), max(1, AT_ONCE // len(used))):
        part = slice(start, start + max(1, AT_ONCE // len(used)))
        lower = factors[part] @ channels
        row, column = np.nonzero((spatial.used[part, None] * used <= tiles) & (lower <= limit * (1 + ROUNDING)))
        found.append((row + start, column, lower[row, column]))
    row, column, lower = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if len(row) == 0:
        return None
    index = [each[row] for each in spatial.index]
    index[grid.p.dims + 1], index[grid.p.dims + 2] = out[column], in_[column]
    return grid.at(index), lower


def _spatial(grid: Grid, sizes: tuple[int, ...], tiles: int, limit: float) -> Grid | None:
    """Splits of all dimensions except the channels, which stay unsplit here."""
    n = grid.p.dims
    channels = (n + 1, n + 2)
    others = math.prod(sizes[i] for i in channels)
    further = math.prod(int(grid.lists[i][0].max(initial=1)) for i in channels)
    one = np.ones((2, 1), dtype=np.int64)
    lists = [one if i in channels else each for i, each in enumerate(grid.lists)]
    sizes = tuple(1 if i in channels else size for i, size in enumerate(sizes))
    index = combinations(lists, sizes, tiles, limit, others, further)
    return None if index is None else dataclasses.replace(grid, lists=lists, index=index, cache={})


def _channels(grid: Grid, outs: Array, ins: Array) -> Array:
    """Channel factors of the quick bound: of inputs received, weights, partial results and copies, for each split."""
    shared = np.where(outs[0] % grid.machine.bus_tiles == 0, grid.machine.bus_tiles, 1) if grid.shared_bus else 1
    return np.array(
        [ins[1] * (1 - 1 / outs[0]) / shared, ins[1] * outs[1], outs[1], 1 / (outs[0] * ins[0])], dtype=float
    )
