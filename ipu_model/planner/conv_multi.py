"""Several convolutions side by side in the same compute sets and exchanges, each on tiles of its own.

The largest is planned on nearly all tiles, then on the fewest that keep it within a tenth more cycles for each other
convolution. The others are planned so that no step of theirs takes longer than the same step of those before them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ipu_model.planner import conv_search
from ipu_model.planner.conv_grid import Array, Grid, Options, Split
from ipu_model.planner.conv_params import ConvParams, cdiv
from ipu_model.target import Machine

RESERVED = 50  # tiles kept for each convolution that is not yet planned
BACK_OFF = 0.1  # more cycles that the largest may take for each other convolution
# The planner's steps. Operands and partial results are exchanged in one step.
STEPS = (("input_exchange", "weight_exchange", "partial_exchange"), ("compute",), ("reduce",), ("cast",), ("copy",),
         ("copy_exchange",), ("tile_transform",), ("serial",))  # fmt: skip
# Order of preference of splits, least first; the first key also bounds the cycles worth looking at.
Keys = Callable[[Grid, Mapping[str, Array]], tuple[Array, ...]]
Limit = Callable[[float], float]


@functools.lru_cache(maxsize=256)
def plan_parallel(convolutions: tuple[ConvParams, ...], machine: Machine, options: Options) -> tuple[Split, ...]:
    """A plan for each convolution, in their order; each on all tiles, in turn, when they do not fit side by side.

    The one with the most multiplies decides the others; the options are those of all of them.
    """
    order = sorted(range(len(convolutions)), key=lambda i: -convolutions[i].macs)
    ordered = [convolutions[i] for i in order]
    found = _side_by_side(ordered, machine, options) if len(ordered) > 1 else None
    if found is None:
        found = [conv_search.plan(p, machine, options) for p in ordered]
    return tuple(found[order.index(i)] for i in range(len(order)))


def _side_by_side(convolutions: Sequence[ConvParams], machine: Machine, options: Options) -> list[Split] | None:
    others, tiles = len(convolutions) - 1, options.tiles or machine.tiles
    first = _largest(convolutions[0], machine, options, tiles - RESERVED * others, 1 + BACK_OFF * others)
    if first is None:
        return None
    found, left = {0: first}, tiles - _even(first.tiles)
    slowest = steps(first.terms)
    for i in [*range(others, 1, -1), 1]:
        last = i == 1
        kept = 0 if last else RESERVED * (others - len(found))
        each = dataclasses.replace(options, tiles=left - kept)
        split = _next_plan(convolutions[i], machine, each, slowest, last) if left > kept else None
        if split is None:
            return None
        found[i], left = split, left - _even(split.tiles)
        slowest = np.maximum(slowest, steps(split.terms))
    return [found[i] for i in range(len(convolutions))]


def _largest(params: ConvParams, machine: Machine, options: Options, tiles: int, factor: float) -> Split | None:
    """The fewest tiles on which a convolution stays within `factor` of its cycles on `tiles` tiles."""
    if tiles < 1:
        return None
    limited = dataclasses.replace(options, tiles=tiles)
    fastest = conv_search.plan(params, machine, limited)
    limit = fastest.cycles * factor * (1 + 1e-9)

    def keys(grid: Grid, terms: Mapping[str, Array]) -> tuple[Array, ...]:
        total = np.sum(list(terms.values()), axis=0)
        return np.where(total <= limit, grid.used, math.inf), total, grid.temporary()

    serial = (fastest.in_serial, fastest.out_serial)
    return _least_split(params, machine, limited, keys, lambda best: limit, serial)


def _next_plan(params: ConvParams, machine: Machine, options: Options, slowest: Array, last: bool) -> Split | None:
    """The plan whose steps exceed `slowest` least; of equal ones that on fewest tiles (`last`: with least memory)."""
    allowed = float(slowest.sum())

    def keys(grid: Grid, terms: Mapping[str, Array]) -> tuple[Array, ...]:
        excess = np.maximum(0.0, steps(terms) - slowest[:, None]).sum(axis=0)
        second = grid.temporary() if last else grid.used
        return excess, second, np.sum(list(terms.values()), axis=0)

    for room in (1.0, 2.0, math.inf):  # the steps that only this convolution has seldom take many cycles
        found = _least_split(
            params, machine, options, keys, lambda best, room=room: min(room * allowed, allowed + best)
        )
        if found is not None:
            return found
    return None


def _least_split(
    params: ConvParams,
    machine: Machine,
    options: Options,
    keys: Keys,
    limit: Limit,
    serial: tuple[int, int] = (1, 1),
) -> Split | None:
    """The split with the least `keys`; `limit` maps the best key so far to the most cycles that a better split has."""
    bound = options.available_memory * machine.tile_memory
    best, least = None, (math.inf,)
    for job in conv_search.jobs_of(params, machine, options):
        most = limit(least[0])
        if job.lower > most:
            break
        grid = conv_search.fitting(job, machine, options, bound, most * (1 + 1e-9), serial)
        if grid is None:
            continue
        terms = grid.terms()
        columns = keys(grid, terms)
        at = int(np.lexsort(columns[::-1])[0])
        key = tuple(float(column[at]) for column in columns)
        if key < least and math.isfinite(key[0]):
            best, least = grid.split(at, dict(terms)), key
    return best


def steps(terms: Mapping[str, Array | float]) -> Array:
    """Cycles of each of the planner's steps, one row a step."""
    return np.array([sum(terms[name] for name in names) for names in STEPS], dtype=float)


def _even(tiles: int) -> int:
    return 2 * cdiv(tiles, 2)
