"""Search for the cheapest way to split a convolution over the tiles, priced with the planner's own constants."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ipu_model.planner.conv_grid import SIZES, Grid, Options, Split, rearrangements
from ipu_model.planner.conv_params import ConvParams, cdiv
from ipu_model.planner.conv_transforms import Problem, transformed_problems
from ipu_model.planner.conv_vertices import Vertex, candidates
from ipu_model.target import Machine

Array = np.ndarray
MOST_COMBINATIONS = 5_000_000  # of splits of one problem, before those that need too many tiles are dropped
SERIAL_SPLITS = ((1, 2), (1, 4), (1, 8), (2, 1), (4, 1))  # (input, output) channels
SERIAL_LOSS = 4.0  # times the cycles of one step with room enough, above which serial steps are not looked at
FURTHER_STEPS = (16, 32, 64, 128, 256)  # where those do not fit: the fewest steps that do, over both channels


@functools.lru_cache(maxsize=4096)
def plan(params: ConvParams, machine: Machine, options: Options) -> Split:
    """The cheapest split that fits the available memory; without one, the bound is raised as the library does."""
    bound = options.available_memory * machine.tile_memory
    jobs = jobs_of(params, machine, options)
    best, left_out = _best(jobs, machine, options, bound, ((1, 1),))
    likely = SERIAL_LOSS * left_out
    if best is None or left_out < best.cycles:
        best, _ = _best(jobs, machine, options, bound, SERIAL_SPLITS, best, likely)
    for steps in FURTHER_STEPS if best is None else ():
        pairs = tuple((2**i, steps >> i) for i in range(steps.bit_length()))
        best, _ = _best(jobs, machine, options, bound, pairs, None, likely)
        if best is not None:
            break
    while best is None:
        bound = 2 * bound if bound <= 2 * machine.tile_memory else math.inf
        best, _ = _best(jobs, machine, options, bound, ((1, 1),))
    return best


def at_size(params: ConvParams, split: Split, machine: Machine, options: Options) -> Split:
    """The transforms, vertex and splits of `split` for `params`, which differ from its own in sizes only."""
    before = split.problem
    alike = [q for q in transformed_problems(params, options.matmul) if q.swapped == before.swapped]
    tags = (before.expanded, before.out_flattened, before.combined)
    problem = next((q for q in alike if (q.expanded, q.out_flattened, q.combined) == tags), alike[0])
    v, serial = split.vertex, (split.in_serial, split.out_serial)
    splits = (*split.field, split.batch, split.out_parallel, split.in_parallel, split.groups, *split.kernel)
    sizes = _extents(problem.params, v, *serial)
    lists = [np.array([[s], [cdiv(n, s)]]) for s, n in zip(splits, sizes, strict=True)]
    grid = Grid(problem, v, machine, options, *serial, lists, [np.zeros(1, dtype=np.intp)] * len(lists))
    return grid.split(0, grid.terms())


def _extents(p: ConvParams, v: Vertex, in_serial: int, out_serial: int) -> tuple[int, ...]:
    """What is split over the tiles, in the order of a grid: outputs, batch, channels and groups in groups, kernel."""
    ins = cdiv(cdiv(p.in_channels, v.ipg), in_serial)
    outs = cdiv(cdiv(p.out_channels, v.opg), out_serial)
    return (*p.out, p.batch, outs, ins, cdiv(p.groups, v.gpg), *p.kernel)


class Job(NamedTuple):
    """A problem for a vertex: a lower bound of its cycles, and of those beside arithmetic."""

    lower: float
    beside: float
    problem: Problem
    vertex: Vertex


def jobs_of(params: ConvParams, machine: Machine, options: Options) -> list[Job]:
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
            each = work * width / tiles
            beside = _least_copy(problem, v, options, tiles) + _least_exchange(p, v, each, machine)
            jobs.append(Job(each / v.rate + beside, beside, problem, v))
    jobs.sort(key=lambda job: job.lower)
    return jobs


def _least_copy(problem: Problem, v: Vertex, options: Options, tiles: int) -> float:
    """A lower bound of the cycles spent on rearranging operands."""
    p, moved = problem.params, rearrangements(problem, v, options)
    each = p.groups * p.in_channels
    elements = moved["input"] * math.prod(p.field) * p.batch * each
    elements += moved["weights"] * math.prod(p.kernel) * p.out_channels * each
    elements += moved["output"] * math.prod(p.out) * p.batch * p.out_channels * p.groups
    return elements * (1.25 + SIZES[v.data] / 4) / tiles


def _least_exchange(p: ConvParams, v: Vertex, work: float, machine: Machine) -> float:
    """A lower bound of exchange cycles for tiles that do `work` multiplies each.

    With f outputs, i input and o output channels on a tile and a kernel of k positions, ``f k i o = work`` and the
    exchange is at least ``a f i + b k i o + c f o``, where inputs (weights) stay at home only if the output channels
    (the outputs) are not split. Each case is bounded by the inequality of means.
    """
    rate, size = machine.exchange_bytes, SIZES[v.data]
    c = SIZES[v.partials] / rate
    b = size / (2 * rate)
    a = b / machine.bus_tiles / math.prod(p.in_dilation)
    k = math.prod(p.kernel)
    outputs = math.prod(p.out) * p.batch
    everywhere = 3 * (a * b * c * work * work / k) ** (1 / 3)
    no_output_split = 2 * math.sqrt(b * c * work * p.out_channels)
    no_field_split = 2 * math.sqrt(a * c * outputs * work / k)
    return min(everywhere, no_output_split, no_field_split, c * outputs * p.out_channels) if p.groups == 1 else 0.0


def _least_memory(p: ConvParams, v: Vertex, work: float) -> float:
    """A lower bound of temporary bytes for tiles that do `work` multiplies each, by the same inequality."""
    size, k = SIZES[v.data], math.prod(p.kernel)
    inputs = math.prod(min(1.0, f / max(1, o)) for f, o in zip(p.field, p.out, strict=True)) / math.prod(p.in_dilation)
    return 3 * (inputs * size * size * SIZES[v.partials] * work * work / k) ** (1 / 3)


def _best(
    jobs: list[Job],
    machine: Machine,
    options: Options,
    bound: float,
    serials: Iterable[tuple[int, int]],
    best: Split | None = None,
    limit: float = math.inf,
) -> tuple[Split | None, float]:
    """The cheapest split that fits in `bound`, and the least cycles of any left out for its memory.

    Among equals the one with least temporary memory; `best` stays when no split is better, or none is within `limit`.
    """
    limit = min(limit, best.cycles) if best is not None else limit
    left_out = math.inf
    for job in jobs:
        if job.lower > limit:
            break
        for in_serial, out_serial in serials:
            found, missed = _search(job, machine, options, bound, limit, in_serial, out_serial)
            left_out = min(left_out, missed)
            if found is not None and (best is None or (found.cycles, found.temp) < (best.cycles, best.temp)):
                best, limit = found, found.cycles
    return best, left_out


@functools.cache
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
    job: Job, machine: Machine, options: Options, bound: float, limit: float, in_serial: int, out_serial: int
) -> tuple[Split | None, float]:
    """The best split of one problem for one vertex, None when none is within `limit` and fits in `bound`.

    Beside it a lower bound of the cycles of those that do not fit (infinite when all do).
    """
    grid, left_out = fitting(job, machine, options, bound, limit, (in_serial, out_serial))
    if grid is None:
        return None, left_out
    terms = grid.terms()
    total = np.sum(list(terms.values()), axis=0)
    best = int(np.lexsort((grid.temporary(), total))[0])
    return (grid.split(best, terms) if total[best] <= limit else None), left_out


def fitting(
    job: Job, machine: Machine, options: Options, bound: float, limit: float, serial: tuple[int, int] = (1, 1)
) -> tuple[Grid | None, float]:
    """Splits of one problem for one vertex that may take at most `limit` cycles and fit in `bound` bytes.

    Beside them a lower bound of the cycles of those that do not fit (infinite when all do).
    """
    problem, v = job.problem, job.vertex
    p, tiles = problem.params, options.tiles or machine.tiles
    in_serial, out_serial = serial
    sizes = _extents(p, v, in_serial, out_serial)
    lists = [useful_splits(n, tiles) for n in sizes]
    if v.method in ("slic", "vmac"):
        lists[p.dims + 1] = lists[p.dims + 1][:, lists[p.dims + 1][1] == 1]
    if v.method == "slic":
        lists[p.dims + 2] = lists[p.dims + 2][:, lists[p.dims + 2][1] == 1]
    lists = _thinned(lists)
    if _least_memory(p, v, math.prod(sizes) * v.gpg * v.ipg * v.opg / tiles) > bound:
        return None, job.lower
    unit = v.gpg * v.ipg * v.opg * in_serial * out_serial / v.rate
    index = combinations(lists, sizes, tiles, (limit - job.beside) / unit)
    if index is None:
        return None, math.inf
    grid = Grid(problem, v, machine, options, in_serial, out_serial, lists, index)
    copied = _least_copy(problem, v, options, 1) / (in_serial * out_serial)
    grid = grid.keep(grid.quick_bound(copied) + unit * grid.work() <= limit)
    grid = grid and grid.keep(grid.exchange_bound() + grid.compute() <= limit)
    if grid is None:
        return None, math.inf
    fits = grid.temporary() <= bound
    least = grid.exchange_bound() + grid.compute()
    left_out = float(np.min(least[~fits], initial=math.inf))
    return grid.keep(fits), left_out


def _thinned(lists: list[Array]) -> list[Array]:
    """Fewer values of the longest lists where all combinations would be too many to price."""
    most = 64
    while math.prod(a.shape[1] for a in lists) > MOST_COMBINATIONS and most > 8:
        lists = [a if a.shape[1] <= most else a[:, np.linspace(0, a.shape[1] - 1, most).astype(int)] for a in lists]
        most -= 8
    return lists


def combinations(lists: list[Array], sizes: tuple[int, ...], tiles: int, limit: float) -> list[Array] | None:
    """All combinations of splits that use at most `tiles` tiles and may stay below `limit` multiplies per tile."""
    order = sorted((i for i, a in enumerate(lists) if a.shape[1] > 1), key=lambda i: lists[i].shape[1])
    fixed = [i for i, a in enumerate(lists) if a.shape[1] == 1]
    if any(a.shape[1] == 0 for a in lists):
        return None
    loss0 = math.prod(float(lists[i][0, 0] * lists[i][1, 0] / sizes[i]) for i in fixed)
    used, loss = np.full(1, math.prod(int(lists[i][0, 0]) for i in fixed)), np.full(1, loss0)
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
    nothing = np.zeros(len(keep), dtype=np.intp)
    return [picked[i][keep] if i in picked else nothing for i in range(len(lists))]
