"""Combinations of splits of a convolution's dimensions, pruned by a quick lower bound of their cycles."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_grid import SIZES, Grid, windows
from ipu_model.planner.conv_params import ConvParams, cdiv
from ipu_model.planner.conv_vertices import Tile, least_pair_cycles, product

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


def thin(splits: Array, most: int) -> Array:
    """At most so many of the splits of a dimension, evenly chosen."""
    count = splits.shape[1]
    return splits if count <= most else splits[:, np.linspace(0, count - 1, most).astype(int)]


def thinned(lists: list[Array]) -> list[Array]:
    """The lists with fewer values in the longest ones, where all combinations would be too many to price."""
    most, fewer = 64, lists
    while math.prod(a.shape[1] for a in fewer) > MOST_COMBINATIONS and most > 8:
        fewer, most = [thin(a, most) for a in lists], most - 8
    return fewer


def combinations(lists: list[Array], sizes: tuple[int, ...], tiles: int, limit: float = math.inf) -> list[Array] | None:
    """All combinations of splits that use at most `tiles` tiles and may stay below `limit` multiplies per tile."""
    order = sorted((i for i, a in enumerate(lists) if a.shape[1] > 1), key=lambda i: lists[i].shape[1])
    fixed = [i for i, a in enumerate(lists) if a.shape[1] == 1]
    if any(a.shape[1] == 0 for a in lists):
        return None
    loss0 = math.prod(float(lists[i][0, 0] * lists[i][1, 0] / sizes[i]) for i in fixed)
    used, loss = np.full(1, math.prod(int(lists[i][0, 0]) for i in fixed)), np.full(1, loss0)
    whole = math.prod(sizes)
    steps: list[tuple[int, Array, Array]] = []
    further = math.prod(int(lists[i][0].max()) for i in order)  # parts that the dimensions to come may have
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


def in_order(lists: list[Array], sizes: tuple[int, ...], tiles: int) -> list[Array]:
    """The (split, share) of each dimension in all combinations of at most `tiles` tiles, as nested loops meet them."""
    index = combinations(lists, sizes, tiles) or []
    order = np.lexsort(index[::-1])
    return [rows[:, i[order]] for rows, i in zip(lists, index, strict=True)]


@dataclass(frozen=True)
class Spatial:
    """Splits of field, batch, groups and kernel over tiles, and what the fullest tile has; the channels stay whole."""

    index: list[Array]  # the position of each split in the list of its dimension
    used: Array  # tiles used
    # multiplies for each pair of channels, elements of the input for each input channel and of the results for each
    # output channel
    work: Array
    inputs: Array
    results: Array
    # elements of the weights for each pair of channels, and those of them that are not at home on the tile
    kernels: Array
    received: Array
    # tiles that share the weights, and those whose partial results are added, if each has all channels
    places: Array
    depth: Array
    tile: Tile  # the share of the fullest tile, with one group of input and one of output channels


@functools.lru_cache(maxsize=64)
def spatial_splits(p: ConvParams, groups: int, tiles: int, counts: tuple[int, ...]) -> Spatial:
    """The splits over at most `tiles` tiles for vertices that take `groups` groups at once.

    `counts` are the lengths of the lists of splits, in a grid's order. All vertices of a problem share the result.
    """
    n = p.dims
    sizes = (*p.out, p.batch, 1, 1, cdiv(p.groups, groups), *p.kernel)
    lists = [thin(useful_splits(size, tiles), most) for size, most in zip(sizes, counts, strict=True)]
    index = combinations(lists, sizes, tiles)
    assert index is not None  # one tile is always enough
    split, share = zip(*(each[:, i] for each, i in zip(lists, index, strict=True)), strict=True)
    out, kernel = share[:n], share[n + 4 :]
    outputs, weights = share[n] * product(out), share[n + 3] * groups * product(kernel)
    places = product(split[: n + 1])
    return Spatial(
        index, product(split), outputs * share[n + 3] * product(kernel),
        share[n] * share[n + 3] * groups * windows(p, out, kernel), outputs * share[n + 3] * groups, weights,
        weights * (1 - 1 / places), places, product(split[n + 4 :]),
        Tile(share[n + 3], share[n + 2], share[n + 1], share[n], out, kernel),
    )  # fmt: skip


@dataclass(frozen=True)
class Quick:
    """Constants of a vertex for the quick lower bound of cycles."""

    beside: float  # least cycles beside arithmetic, however the problem is split
    unit: float  # cycles of arithmetic for each product of shares
    copied: float  # least cycles of rearranging operands on one tile alone

    def factors(self, s: Spatial, grid: Grid) -> Array:
        """The factors of the bound that depend on field, batch, groups and kernel, in the order of `_channels`."""
        v, serial = grid.v, grid.serial
        word = SIZES[v.data] / grid.machine.exchange_bytes
        inputs = serial * word * v.ipg * s.inputs
        weights = serial * (v.ipg * v.opg * word * s.received + least_pair_cycles(v, grid.p, s.tile, grid.machine))
        results = serial * v.opg * grid.partial_bytes / grid.machine.exchange_bytes * s.results
        return np.stack([inputs, weights, results, serial * self.copied / s.used], 1)


def promising(grid: Grid, sizes: tuple[int, ...], tiles: int, limit: float, quick: Quick) -> tuple[Grid, Array] | None:
    """The splits of a problem whose quick bound is within `limit`, and that bound; None when there are none.

    `grid` has the lists of splits and no rows yet. The bound is a sum of products of one factor that depends on field,
    batch, groups and kernel (`spatial_splits`) and one that depends on the channels (`_channels`): one matrix product.
    """
    n = grid.p.dims
    outs, ins = grid.lists[n + 1], grid.lists[n + 2]
    if 0 in (outs.shape[1], ins.shape[1]):
        return None
    counts = tuple(1 if i in (n + 1, n + 2) else each.shape[1] for i, each in enumerate(grid.lists))
    spatial = spatial_splits(grid.p, grid.v.gpg, tiles, counts)
    out, in_ = np.divmod(np.arange(len(outs[0]) * len(ins[0])), len(ins[0]))
    channels, used = _channels(grid, outs[:, out], ins[:, in_]), outs[0, out] * ins[0, in_]
    factors = quick.factors(spatial, grid)
    # if every tile is used, the shares of the channels are as small as possible
    fewest = np.maximum(1.0, sizes[n + 1] * sizes[n + 2] / tiles * spatial.used)
    rest = factors[:, 2] + factors[:, 3] * spatial.used / tiles
    arithmetic = quick.unit * spatial.work * fewest
    limit *= 1 + ROUNDING
    likely = np.nonzero((factors[:, 1] * fewest + rest <= limit) & (arithmetic <= limit - quick.beside))[0]
    at_once = max(1, AT_ONCE // len(used))
    found: list[tuple[Array, Array, Array]] = []
    for start in range(0, len(likely), at_once):
        part = likely[start : start + at_once]
        lower = factors[part] @ channels
        within = (spatial.used[part, None] * used <= tiles) & (lower <= limit)
        row, column = np.divmod(np.flatnonzero(within), len(used))
        found.append((part[row], column, lower[row, column]))
    if not sum(len(row) for row, _, _ in found):
        return None
    row, column, lower = (np.concatenate(parts) for parts in zip(*found, strict=True))
    index = [each[row] for each in spatial.index]
    index[n + 1], index[n + 2] = out[column], in_[column]
    (parts, o), (depth, i) = outs[:, index[n + 1]], ins[:, index[n + 2]]
    o, i = o * grid.v.opg, i * grid.v.ipg
    known = {
        "inputs": spatial.inputs[row] * i,
        "weights": spatial.kernels[row] * (i * o),
        "parts": spatial.results[row] * o,
        "used": spatial.used[row] * parts * depth,
        "depth": spatial.depth[row] * depth,
        "places": spatial.places[row],
    }
    return grid.at(index, known), lower


def _channels(grid: Grid, outs: Array, ins: Array) -> Array:
    """Channel factors of the quick bound: of inputs received, weights, partial results and copies, for each split."""
    shared = np.where(outs[0] % grid.machine.bus_tiles == 0, grid.machine.bus_tiles, 1) if grid.shared_bus else 1
    return np.array(
        [ins[1] * (1 - 1 / outs[0]) / shared, ins[1] * outs[1], outs[1], 1 / (outs[0] * ins[0])], dtype=float
    )
