"""One partition for the three passes of a fully connected layer, so that no operand moves between them."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from ipu_model.planner.conv_grid import Grid, Options, Split
from ipu_model.planner.conv_params import ConvParams, cdiv
from ipu_model.planner.conv_splits import combinations, useful_splits
from ipu_model.planner.conv_transforms import Problem, transformed_problems
from ipu_model.planner.conv_vertices import Vertex, candidates
from ipu_model.target import Machine

PASSES = ("fc_training_fwd", "fc_training_bwd", "fc_training_wu")


@functools.lru_cache(maxsize=1024)
def plan_joint(
    forward: ConvParams, backward: ConvParams, update: ConvParams, machine: Machine, options: Options
) -> tuple[Split, Split, Split] | None:
    """The cheapest common partition within the available memory, None when there is none.

    The backward pass exchanges the splits of field and input channels, the weight update those of output and input
    channels; the vertex group sizes follow.
    """
    problems = [
        next(q for q in transformed_problems(p, True) if q.swapped and not q.expanded and not q.out_flattened)
        for p in (forward, backward, update)
    ]
    best, limit = None, math.inf
    for v in candidates(problems[0].params, machine, options.pass_, True, options.partials):
        if not _joinable(v, problems[2].params, machine):
            continue
        for partners in _partners(v, problems[2].params):
            grids = _grids(problems, (v, *partners), machine, options, limit)
            found = _cheapest(grids, options.available_memory * machine.tile_memory)
            if found is not None and found[0] < limit:
                limit, best = found
    return best


def _joinable(v: Vertex, update: ConvParams, machine: Machine) -> bool:
    """Whether a vertex allows one partition for all passes: AMP, or dot products whose update is an outer product."""
    if v.method == "amp":
        return v.ipg % v.units == 0
    whole = v.ipg == 1 or v.ipg % machine.units(v.data, v.partials) == 0
    return v.method == "hmac" and whole and v.opg == 1 and update.in_channels == 1 and v.data == v.partials


def _partners(v: Vertex, update: ConvParams) -> list[tuple[Vertex, Vertex]]:
    """Vertices of the backward pass and of the weight update that go with the forward one.

    A weight update whose channels (the batch) are one group may write its result in half precision at once.
    """
    if v.method == "hmac":
        return [(v, Vertex("outer", 1, 1, v.ipg, 0, v.data, v.data, v.rate))]
    weights = v.ipg * v.height
    wu = v._replace(ipg=v.opg, opg=v.ipg, height=max(1, weights // v.opg))
    found = [(v, wu)]
    if v.data == "half" and update.output == "half" and cdiv(update.in_channels, wu.ipg) * wu.ipg == 16:
        found.append((v, wu._replace(partials="half")))
    return found


def _grids(
    problems: list[Problem], vertices: tuple[Vertex, ...], machine: Machine, options: Options, limit: float
) -> list[Grid]:
    v, p, tiles = vertices[0], problems[0].params, options.tiles or machine.tiles
    n, grain = p.dims, v.ipg
    sizes = [*p.out, p.batch, cdiv(p.out_channels, v.opg), cdiv(p.in_channels, v.ipg), p.groups, *p.kernel]
    sizes[n - 1] = cdiv(p.out[-1], grain)
    lists = [useful_splits(size, tiles) for size in sizes]
    unit = v.ipg * v.opg * grain / v.rate
    index = combinations(lists, tuple(sizes), tiles, limit / unit)
    if index is None:
        return []
    orders = [list(range(len(lists))) for _ in range(3)]
    orders[1][n - 1], orders[1][n + 2] = n + 2, n - 1
    orders[2][n + 1], orders[2][n + 2] = n + 2, n + 1
    return [
        Grid(
            problem,
            vertex,
            machine,
            dataclasses.replace(options, pass_=pass_),
            1,
            1,
            [lists[i] for i in order],
            [index[i] for i in order],
            grain=v.ipg,
            joint=True,
            shared_bus=pass_ == PASSES[0],
        )
        for problem, vertex, pass_, order in zip(problems, vertices, PASSES, orders, strict=True)
    ]


def _cheapest(grids: list[Grid], bound: float) -> tuple[float, tuple[Split, Split, Split]] | None:
    if not grids:
        return None
    mask = np.all([g.temporary() <= bound for g in grids], axis=0)
    kept = [g.keep(mask) for g in grids]
    if any(g is None for g in kept):
        return None
    terms = [g.terms() for g in kept if g is not None]
    total = np.sum([np.sum(list(t.values()), axis=0) for t in terms], axis=0)
    held = np.max([g.temporary() for g in kept if g is not None], axis=0)
    best = int(np.lexsort((held, total))[0])  # among equals the one with least temporary memory
    splits = tuple(g.split(best, t) for g, t in zip(kept, terms, strict=True) if g is not None)
    return float(total[best]), splits  # pyright: ignore[reportReturnType]
