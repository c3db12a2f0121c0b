"""Search for the cheapest way to split a convolution over the tiles, priced with the planner's own constants."""

from __future__ import annotations

import functools
import math

import numpy as np

from ipu_model.planner.conv_grid import SIZES, Grid, Options, Split, rearrangements
from ipu_model.planner.conv_params import ConvParams, cdiv
from ipu_model.planner.conv_transforms import Problem, transformed_problems
from ipu_model.planner.conv_vertices import Vertex, candidates
from ipu_model.target import Machine

Array = np.ndarray
SERIAL_SPLITS = ((1, 2), (1, 4), (1, 8), (2, 1), (4, 1))  # (input, output) channels


@functools.lru_cache(maxsize=4096)
def plan(params: ConvParams, machine: Machine, options: Options) -> Split:
    """The cheapest split that fits the available memory; without one, the bound is raised as the library does."""
    bound = options.available_memory * machine.tile_memory
    jobs = _jobs(params, machine, options)
    best = _best(jobs, machine, options, bound, ((1, 1),))
    if best is None:
        best = _best(jobs, machine, options, bound, SERIAL_SPLITS)
    while best is None:
        bound = 2 * bound if bound <= 2 * machine.tile_memory else math.inf
        best = _best(jobs, machine, options, bound, ((1, 1),))
    return best


def _jobs(params: ConvParams, machine: Machine, options: Options) -> list[tuple[float, Problem, Vertex]]:
    """Pairs of problem and vertex with a lower bound of their cycles, most promising first."""
    tiles = options.tiles or machine.tiles
    jobs = []
    for problem in transformed_problems(params, options.matmul):
        p = problem.params
        for v in candidates(p, machine, options.pass_, problem.swapped, options.partials):
            padded = (
                cdiv(p.groups, v.gpg) * v.gpg * cdiv(p.in_channels, v.ipg) * v.ipg * cdiv(p.out_channels, v.opg) * v.opg
            )
            work = padded * p.batch * math.prod(p.out) * math.prod(p.kernel[:-1])
            width = cdiv(p.kernel[-1], 4) * 4 if v.method == "slic" else p.kernel[-1]
            jobs.append((0.9 * work * width / (v.rate * tiles) + _least_copy(problem, v, options, tiles), problem, v))
    jobs.sort(key=lambda job: job[0])
    return jobs


def _least_copy(problem: Problem, v: Vertex, options: Options, tiles: int) -> float:
    """A lower bound of the cycles spent on rearranging operands."""
    p, moved = problem.params, rearrangements(problem, v, options)
    each = p.groups * p.in_channels
    elements = moved["input"] * math.prod(p.field) * p.batch * each
    elements += moved["weights"] * math.prod(p.kernel) * p.out_channels * each
    elements += moved["output"] * math.prod(p.out) * p.batch * p.out_channels * p.groups
    return elements * (1.25 + SIZES[v.data] / 4) / tiles


def _best(jobs, machine: Machine, options: Options, bound: float, serials) -> Split | None:
    best: Split | None = None
    limit = math.inf
    for lower, problem, vertex in jobs:
        if lower >= limit:
            break
        for in_serial, out_serial in serials:
            found = _search(problem, vertex, machine, options, bound, limit, in_serial, out_serial)
            if found is not None and found.cycles < limit:
                best, limit = found, found.cycles
    return best


def useful_splits(n: int, most: int) -> Array:
    """Rows (split, share): the smallest split for each distinct share."""
    rows, s = [], 1
    while s <= min(n, most):
        share = cdiv(n, s)
        rows.append((s, share))
        if share == 1:
            break
        s = cdiv(n, share - 1)
    return np.array(rows, dtype=np.int64).T


def _search(
    problem: Problem,
    v: Vertex,
    machine: Machine,
    options: Options,
    bound: float,
    limit: float,
    in_serial: int,
    out_serial: int,
) -> Split | None:
    """The best split of one problem for one vertex, None when none is below `limit` and fits in `bound`."""
    p, tiles = problem.params, options.tiles or machine.tiles
    ins = cdiv(cdiv(p.in_channels, v.ipg), in_serial)
    outs = cdiv(cdiv(p.out_channels, v.opg), out_serial)
    sizes = (*p.out, p.batch, outs, ins, cdiv(p.groups, v.gpg), *p.kernel)
    lists = [useful_splits(n, tiles) for n in sizes]
    if v.method in ("slic", "vmac"):
        lists[p.dims + 1] = lists[p.dims + 1][:, lists[p.dims + 1][1] == 1]
    if v.method == "slic":
        lists[p.dims + 2] = lists[p.dims + 2][:, lists[p.dims + 2][1] == 1]
    unit = v.gpg * v.ipg * v.opg * in_serial * out_serial / v.rate
    index = combinations(lists, sizes, tiles, limit / unit)
    if index is None:
        return None
    grid = Grid(problem, v, machine, options, in_serial, out_serial, lists, index)
    grid = grid.keep(grid.exchange_bound() + unit * grid.work() <= limit)
    if grid is None:
        return None
    grid = grid.keep(grid.temporary() <= bound)
    if grid is None:
        return None
    terms = grid.terms()
    total = sum(terms.values())
    best = int(np.argmin(total))
    return grid.split(best, terms) if total[best] < limit else None


def combinations(lists: list[Array], sizes: tuple[int, ...], tiles: int, limit: float) -> list[Array] | None:
    """All combinations of splits that use at most `tiles` tiles and may stay below `limit` multiplies per tile."""
    order = sorted(range(len(lists)), key=lambda i: lists[i].shape[1])
    used, loss = np.ones(1, dtype=np.int64), np.ones(1)
    picked: dict[int, Array] = {}
    floor = math.prod(sizes) / tiles
    for i in order:
        split, share = lists[i]
        new_used = used[:, None] * split[None, :]
        new_loss = loss[:, None] * (split * share / sizes[i])[None, :]
        row, column = np.nonzero((new_used <= tiles) & (new_loss * floor <= limit))
        picked = {k: a[row] for k, a in picked.items()}
        picked[i] = column
        used, loss = new_used[row, column], new_loss[row, column]
    # work of the fullest tile = product of shares = size * loss / used
    keep = np.nonzero(math.prod(sizes) * loss / used <= limit)[0]
    if len(keep) == 0:
        return None
    return [picked[i][keep] for i in range(len(lists))]
