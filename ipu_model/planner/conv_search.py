"""Search for the cheapest way to split a convolution over the tiles, priced with the planner's own constants."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ipu_model.planner.conv_grid import SIZES, Grid, Options, Split, orders, rearrangements
from ipu_model.planner.conv_params import ConvParams, cdiv
from ipu_model.planner.conv_splits import Quick, promising, thinned, useful_splits
from ipu_model.planner.conv_transforms import Problem, transformed_problems
from ipu_model.planner.conv_vertices import Vertex, candidates, least_starts, phases
from ipu_model.target import Machine

Array = np.ndarray
SERIAL_SPLITS = ((1, 2), (1, 4), (1, 8), (2, 1), (4, 1))  # (input, output) channels
# Limits of the search; the first three are multiples of the cycles named.
SERIAL_LOSS = 4.0  # of one step with enough memory: serial steps that take more are skipped
PATIENCE = 1.25  # likewise: single steps that take more are skipped until the serial ones were searched
GUESSES = (2.0, 8.0, math.inf)  # of the lower bound of the first job: successive limits of its search
MANY, FEW = 1000, 64  # with more than MANY splits, the limit is first lowered by pricing the FEW most promising
FURTHER_STEPS = (16, 32, 64, 128, 256)  # where SERIAL_SPLITS do not fit: numbers of steps over both channels


@functools.lru_cache(maxsize=4096)
def plan(params: ConvParams, machine: Machine, options: Options) -> Split:
    """The cheapest split that fits the available memory; without one, the bound is raised as the library does."""
    bound = options.available_memory * machine.tile_memory
    jobs = jobs_of(params, machine, options)
    while (best := _planned(jobs, machine, options, bound)) is None:
        bound = max(2 * bound, machine.tile_memory / 64) if bound <= 2 * machine.tile_memory else math.inf
    return best


def _planned(jobs: Jobs, machine: Machine, options: Options, bound: float) -> Split | None:
    """The cheapest split that fits in `bound` bytes, in one step or in serial ones; None without any."""
    best, left_out = _best(jobs, machine, options, bound, ((1, 1),), patience=PATIENCE)
    likely = SERIAL_LOSS * left_out
    if best is None or left_out < best.cycles:
        best, _ = _best(jobs, machine, options, bound, SERIAL_SPLITS, best, likely)
    if best is None or best.cycles > PATIENCE * left_out:
        # where nothing fits yet, plans that take many times the cycles are not looked for: there may be no end of them
        best, _ = _best(jobs, machine, options, bound, ((1, 1),), best, likely if best is None else math.inf)
    for steps in FURTHER_STEPS if best is None else ():
        pairs = tuple((2**i, steps >> i) for i in range(steps.bit_length()))
        best, _ = _best(jobs, machine, options, bound, pairs, None, likely)
        if best is not None:
            break
    return best


def at_size(params: ConvParams, split: Split, machine: Machine, options: Options) -> Split:
    """The plan `split` (transforms, vertex and splits) applied to `params`, which differ from its own only in sizes."""
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
    """Sizes of the dimensions that are split, in a grid's order: outputs, batch, channel groups, groups, kernel."""
    ins = cdiv(cdiv(p.in_channels, v.ipg), in_serial)
    outs = cdiv(cdiv(p.out_channels, v.opg), out_serial)
    return (*p.out, p.batch, outs, ins, cdiv(p.groups, v.gpg), *p.kernel)


class Job(NamedTuple):
    """A problem and a vertex, with a lower bound of all cycles and one of the cycles other than arithmetic."""

    lower: float
    beside: float
    problem: Problem
    vertex: Vertex


Waiting = tuple[float, int, Job | tuple[Problem, Vertex]]  # lower bound, place among equals


class Jobs:
    """Pairs of problem and vertex with a lower bound of their cycles, most promising first.

    Searches reach few of them. So they wait in order of their arithmetic alone, and get the closer bound, by which they
    may have to wait again, when it is their turn.
    """

    def __init__(self, waiting: list[Waiting], machine: Machine, options: Options) -> None:
        heapq.heapify(waiting)
        self._waiting, self._machine, self._options = waiting, machine, options
        self._done: list[Job] = []

    def __iter__(self) -> Iterator[Job]:
        for at in itertools.count():
            if at == len(self._done) and not self._next():
                return
            yield self._done[at]

    def _next(self) -> bool:
        """Find the next job; whether there was one."""
        while self._waiting:
            arithmetic, place, job = heapq.heappop(self._waiting)
            if isinstance(job, Job):
                self._done.append(job)
                return True
            job = _bounded(*job, arithmetic, self._machine, self._options)
            heapq.heappush(self._waiting, (job.lower, place, job))
        return False


def jobs_of(params: ConvParams, machine: Machine, options: Options) -> Jobs:
    """What may run a convolution; of problems that differ in nothing that is priced the first is taken."""
    tiles = options.tiles or machine.tiles
    waiting: list[Waiting] = []
    seen: set[tuple[object, ...]] = set()
    for problem in transformed_problems(params, options.matmul):
        p = problem.params
        # swapped operands have fewer vertices: a convolution comes first as it is, a product in the other order
        key = p, orders(problem, options), options.matmul and problem.swapped
        if key in seen:
            continue
        seen.add(key)
        share = p.batch * math.prod(p.out) / (tiles * math.prod(phases(p)))
        groups, ins, outs, plain = p.groups, p.in_channels, p.out_channels, math.prod(p.kernel)
        for v in candidates(p, machine, options.pass_, problem.swapped, options.partials):
            gpg, ipg, opg = v.gpg, v.ipg, v.opg
            kernel = math.prod(_kernel(p, v)) if v.method == "slic" or v.height > 1 else plain
            pairs = -(-groups // gpg) * gpg * -(-ins // ipg) * ipg * -(-outs // opg) * opg
            waiting.append((pairs * kernel * share / v.rate, len(waiting), (problem, v)))
    return Jobs(waiting, machine, options)


def _bounded(problem: Problem, v: Vertex, arithmetic: float, machine: Machine, options: Options) -> Job:
    """The job of a vertex with so many cycles of arithmetic."""
    p, tiles = problem.params, options.tiles or machine.tiles
    pairs = cdiv(p.groups, v.gpg) * v.gpg * cdiv(p.in_channels, v.ipg) * v.ipg * cdiv(p.out_channels, v.opg) * v.opg
    weights = pairs * math.prod(p.kernel) / tiles
    work = weights * p.batch * math.prod(p.out)
    copies = _least_copy(problem, v, options, machine) / tiles
    bounds = [
        (_least_exchange(p, v, work, start, machine) + copies, weights * rows)
        for start, rows in least_starts(v, p, machine)
    ]
    return Job(arithmetic + max(map(sum, bounds)), bounds[0][0], problem, v)


def _kernel(p: ConvParams, v: Vertex) -> tuple[int, ...]:
    """The kernel as the vertex works on it: whole blocks of four columns, or of the rows that fill up channels."""
    first, last = (1, 4) if v.method == "slic" else (v.height, 1)
    rows = (cdiv(p.kernel[0], first) * first, *p.kernel[1:])
    return (*rows[:-1], cdiv(rows[-1], last) * last)


def _least_copy(problem: Problem, v: Vertex, options: Options, machine: Machine) -> float:
    """A lower bound of the cycles spent on rearranging operands, of all tiles together."""
    p, moved, rate = problem.params, rearrangements(problem, v, options), machine.exchange_bytes
    each = p.groups * p.in_channels
    elements = moved["input"] * math.prod(p.field) * p.batch * each
    elements += moved["weights"] * math.prod(p.kernel) * p.out_channels * each
    outputs = moved["output"] * math.prod(p.out) * p.batch * p.out_channels * p.groups
    return elements * (1.25 + SIZES[v.data] / rate) + outputs * (1.25 + SIZES[p.output] / rate)


def _least_exchange(p: ConvParams, v: Vertex, work: float, start: float, machine: Machine) -> float:
    """A lower bound of the cycles beside arithmetic and copies for tiles that do `work` multiplies each.

    With f outputs, i input and o output channels on a tile and a kernel of k positions, ``f k i o = work``; the
    exchange is at least ``a f i + b k i o + c f o``, where inputs (weights) stay at home only if the output channels
    (the outputs) are not split, and vertices start for ``h k i o``. Each case is bounded by the inequality of means.
    """
    rate, size = machine.exchange_bytes, SIZES[v.data]
    c = SIZES[v.partials] / rate
    b = size / (2 * rate)
    a = b / machine.bus_tiles / math.prod(p.in_dilation)
    k = math.prod(p.kernel)
    outputs = math.prod(p.out) * p.batch
    if p.groups > 1:
        return start * work / outputs
    everywhere = 3 * (a * (b + start) * c * work * work / k) ** (1 / 3)
    no_output_split = 2 * math.sqrt((b + start) * c * work * p.out_channels)
    no_field_split = 2 * math.sqrt(a * c * outputs * work / k)
    return min(everywhere, no_output_split, min(no_field_split, c * outputs * p.out_channels) + start * work / outputs)


def _least_memory(p: ConvParams, v: Vertex, work: float) -> float:
    """A lower bound of temporary bytes for tiles that do `work` multiplies each, by the same inequality."""
    size, k = SIZES[v.data], math.prod(p.kernel)
    inputs = math.prod(min(1.0, f / max(1, o)) for f, o in zip(p.field, p.out, strict=True)) / math.prod(p.in_dilation)
    return 3 * (inputs * size * size * SIZES[v.partials] * work * work / k) ** (1 / 3)


def _best(
    jobs: Jobs,
    machine: Machine,
    options: Options,
    bound: float,
    serials: Iterable[tuple[int, int]],
    best: Split | None = None,
    limit: float = math.inf,
    patience: float = math.inf,
) -> tuple[Split | None, float]:
    """The cheapest split that fits in `bound` bytes, and the least cycles of any split rejected for its memory.

    Among equals it is the split with least temporary memory; `best` is kept when no split within `limit` is better.
    Until a split fits, those with more than `patience` times the cycles of a rejected one are skipped.
    """
    limit = min(limit, best.cycles) if best is not None else limit
    left_out, guesses = math.inf, GUESSES
    for job in jobs:
        if job.lower > limit:
            break
        for in_serial, out_serial in serials:
            found = None
            for guess in guesses if best is None else (math.inf,):
                within = min(limit, guess * job.lower)
                found, missed = _search(job, machine, options, bound, within, in_serial, out_serial)
                left_out = min(left_out, missed)
                limit = min(limit, patience * left_out)
                if found is not None or within >= limit:
                    break
            if found is None:
                guesses = (math.inf,)
            if found is not None and (best is None or (found.cycles, found.temp) < (best.cycles, best.temp)):
                best, limit = found, min(limit, found.cycles)
    return best, left_out


def _search(
    job: Job, machine: Machine, options: Options, bound: float, limit: float, in_serial: int, out_serial: int
) -> tuple[Split | None, float]:
    """The best split of one problem for one vertex, None when none is within `limit` and fits in `bound`.

    The second result is a lower bound of the cycles of cheaper splits that do not fit (infinite without any).
    """
    serial = in_serial, out_serial
    if _least_memory(job.problem.params, job.vertex, _work(job, machine, options, serial)) > bound:
        return None, job.lower
    grid, lower = _within(job, machine, options, limit, serial)
    if grid is not None and lower.size > MANY:
        limit = _lowered_limit(grid, lower, bound, limit)
        grid = grid.keep(lower <= limit)
    grid, lower = _within_closer_bound(grid, limit)
    if grid is not None and lower.size > MANY:
        limit = _lowered_limit(grid, lower, bound, limit)
        grid = grid.keep(lower <= limit)
    grid, left_out = _fitting_splits(grid, bound)
    if grid is None:
        return None, left_out
    terms = grid.terms()
    total = np.sum(list(terms.values()), axis=0)
    best = int(np.lexsort((grid.temporary(), total))[0])
    return (grid.split(best, terms) if total[best] <= limit else None), left_out


def _lowered_limit(grid: Grid, lower: Array, bound: float, limit: float) -> float:
    """A lower limit of cycles: the cheapest fitting plan among the splits with the lowest bounds, at most `limit`."""
    chosen = np.zeros(lower.size, dtype=bool)
    chosen[np.argpartition(lower, FEW)[:FEW]] = True
    few = grid.keep(chosen)
    assert few is not None
    total = np.sum(list(few.terms().values()), axis=0)
    return float(np.min(total[few.temporary() <= bound], initial=limit))


def fitting(
    job: Job, machine: Machine, options: Options, bound: float, limit: float, serial: tuple[int, int] = (1, 1)
) -> Grid | None:
    """Splits of one problem for one vertex that may take at most `limit` cycles and fit in `bound` bytes."""
    if _least_memory(job.problem.params, job.vertex, _work(job, machine, options, serial)) > bound:
        return None
    grid, _ = _within(job, machine, options, limit, serial)
    return _fitting_splits(_within_closer_bound(grid, limit)[0], bound)[0]


def _work(job: Job, machine: Machine, options: Options, serial: tuple[int, int]) -> float:
    """Multiplies of a tile in one serial step if they were shared evenly."""
    v, tiles = job.vertex, options.tiles or machine.tiles
    return math.prod(_extents(job.problem.params, v, *serial)) * v.gpg * v.ipg * v.opg / tiles


def _within(
    job: Job, machine: Machine, options: Options, limit: float, serial: tuple[int, int]
) -> tuple[Grid | None, Array]:
    """Splits whose quick lower bound of cycles is within `limit`, and that bound."""
    problem, v = job.problem, job.vertex
    p, tiles = problem.params, options.tiles or machine.tiles
    sizes = _extents(p, v, *serial)
    lists = [useful_splits(n, tiles) for n in sizes]
    if v.method in ("slic", "vmac"):
        lists[p.dims + 1] = lists[p.dims + 1][:, lists[p.dims + 1][1] == 1]
    if v.method == "slic":
        lists[p.dims + 2] = lists[p.dims + 2][:, lists[p.dims + 2][1] == 1]
    unit = v.gpg * v.ipg * v.opg * math.prod(serial) / (v.rate * math.prod(phases(p)))
    quick = Quick(job.beside, unit, _least_copy(problem, v, options, machine) / math.prod(serial))
    grid = Grid(problem, v, machine, options, *serial, thinned(lists), [])
    return promising(grid, sizes, tiles, limit, quick) or (None, np.zeros(0))


def _within_closer_bound(grid: Grid | None, limit: float) -> tuple[Grid | None, Array]:
    """The splits whose exchange, copies and vertices take at most `limit` cycles, and the sum of these cycles."""
    grid = grid and grid.keep(grid.exchange_bound() + grid.compute() <= limit)
    return grid, grid.exchange_bound() + grid.compute() if grid else np.zeros(0)


def _fitting_splits(grid: Grid | None, bound: float) -> tuple[Grid | None, float]:
    """The splits that fit in `bound` bytes, and a lower bound of the cycles of the others."""
    if grid is None:
        return None, math.inf
    fits = grid.temporary() <= bound
    least = grid.exchange_bound() + grid.compute()
    return grid.keep(fits), float(np.min(least[~fits], initial=math.inf))
