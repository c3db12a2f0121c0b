"""Benchmark rows of pooling: a forward program, then a backward program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.mapping import linear_share
from ipu_model.planner.pooling import Pooling, PoolParams, plan_pooling
from ipu_model.planner.pooling.place import Placed, Run, run, volume
from ipu_model.planner.reduction import plan_reduction
from ipu_model.planner.steps import LAUNCH, exchange_start
from ipu_model.published.benchmark import Benchmark
from ipu_model.published.formula import EXCHANGED, FIXED, Formula, of_plans
from ipu_model.target import Machine, Target

COPY_STEP = 90.0  # of copying what a tile holds of its windows: gathers of short runs, both passes together
COPY_RATE = 3.2 / 8  # cycles per byte of them
VERTEX_BYTES = 220.0  # state, work lists and exchange code per vertex; 182 to 264 in the table
END = 24 + 8  # bytes behind the last variable of a tile
KINDS = {"avg": "average", "average": "average", "sum": "sum", "max": "max"}


def pooling(p: Mapping[str, Any], data: str, target: Target) -> Benchmark:
    """Forward, then backward; each pass has a plan of its own.

    Raises ValueError where the kind of pooling is not one of the library's.
    """
    params, passes = pool_params(p, data), tuple(i for i in p.get("parts", (0, 1)) if i < 2)
    if not passes:
        raise ValueError("pooling has no weights to update")
    if params.whole_field:
        return _whole_field(params, target, passes)
    forward, backward = (plan_pooling(params, target, back).detail for back in (False, True))
    found = run(params, forward, backward, target.tiles)
    total, highest = memory(params, found, target.machine, passes)
    return Benchmark(cycles(params, forward, backward, found, target, passes), _fixed(total), _fixed(highest))


def pool_params(p: Mapping[str, Any], data: str) -> PoolParams:
    """The pooling that a row describes."""
    padding, kind = p.get("padding", 0), str(p.get("pooling-type", "max")).lower()
    kernel = p["kernel"] if "kernel" in p else p["kernel-size"]
    channels = p["channels"] if "channels" in p else p["input-channels"]
    if kind not in KINDS:
        raise ValueError(f"pooling: pooling-type is {kind!r}; known are {sorted(KINDS)}")
    return PoolParams(
        p.get("batch-size", 1), channels, _pair(p["field"]), _pair(kernel), _pair(p.get("stride", 1)),
        _pair(p.get("padding-lower", padding)), _pair(p.get("padding-upper", padding)), KINDS[kind], data,
        p.get("fwd-chans-per-group", 0),
    )  # fmt: skip


def _pair(value: int | list[int]) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (value, value)


def _fixed(value: float) -> Formula:
    return Formula(({FIXED: float(value)},))


def cycles(
    params: PoolParams, forward: Pooling, backward: Pooling, found: Run, target: Target,
    passes: tuple[int, ...] = (0, 1),
) -> Formula:  # fmt: skip
    """Of each pass a launch, exchanges, copies on the tile and its vertex; two exchanges backward."""
    start, remote, steps = exchange_start(target.machine), 0.0, 0.0
    if 0 in passes:
        remote += found.window.remote
        steps += LAUNCH + start + COPY_STEP / 2 + COPY_RATE * found.window.local * params.size + forward.vertex
    if 1 in passes:
        remote += found.gradient.remote + found.windows.remote
        steps += LAUNCH + 2 * start + COPY_STEP / 2 + COPY_RATE * found.windows.local * params.size + backward.vertex
        if params.kind == "average":  # the gradient is divided by the size of each window first
            steps += multiplied(math.prod(params.out) * params.channels * params.batch, params, target.machine)
    quantities = {FIXED: steps, EXCHANGED: remote * params.size / target.machine.exchange_bytes}
    return Formula((quantities,), frozenset({EXCHANGED}))


def multiplied(elements: int, params: PoolParams, machine: Machine) -> int:
    """Tile cycles of one elementwise product of a tensor dealt out in order."""
    share = cdiv(linear_share(elements, params.size, machine), machine.workers)
    return 11 + machine.workers * ((41 if params.data == "float" else 32) + cdiv(share, params.vector) + 2)


def memory(params: PoolParams, found: Run, machine: Machine, passes: tuple[int, ...] = (0, 1)) -> tuple[float, float]:
    """Total bytes, and the highest address used on a tile; this benchmark compiles no vertices.

    Input and output always live, with their gradients where a backward pass runs; of the windows of a tile the larger
    pass counts. Windows are copied from data on the same tile, so they lie in another memory element.
    """
    size = params.size
    inputs, outputs = (math.prod(field) * params.channels * params.batch for field in (params.field, params.out))
    forward, backward = np.zeros(machine.tiles), np.zeros(machine.tiles)
    for tile, window in zip(found.forward.tiles, found.forward.windows, strict=True):
        forward[tile] += volume(window)
    reads = 2 if params.kind == "max" else 1
    for tile, window, made in zip(found.backward.tiles, found.backward.windows, found.backward.made, strict=True):
        backward[tile] += reads * volume(window) + (volume(made) if params.kind == "max" else 0)
    placed = [(found.forward, forward), (found.backward, backward)]
    vertices = sum(len(set(placed[i][0].tiles)) for i in passes)
    held = np.max([placed[i][1] for i in passes], axis=0)
    total = len({0, *passes}) * (inputs + outputs) * size + float(held.sum()) * size
    made = _largest(found.backward) if 1 in passes else 0
    shares = linear_share(inputs, size, machine) + linear_share(outputs, size, machine) + made
    return total + VERTEX_BYTES * vertices, machine.memory_element + shares * size + END


def _largest(placed: Placed) -> int:
    return max(volume(box) for box in placed.made)


def _whole_field(params: PoolParams, target: Target, passes: tuple[int, ...]) -> Benchmark:
    """A window that takes the whole field: a reduction forward; backward a broadcast, or the planner for a maximum."""
    shape = (params.batch, params.channels, *params.field)
    axes = tuple(range(2, len(shape)))
    operation = "MAX" if params.kind == "max" else "ADD"
    plan = plan_reduction(shape, axes, target, params.data, operation, as_table=True)
    inputs, outputs = math.prod(shape) * params.size, params.batch * params.channels * params.size
    machine = target.machine
    share = linear_share(inputs // params.size, params.size, machine) * params.size
    if params.kind == "max":
        back = plan_pooling(params, target, backward=True)
        behind = sum(back.quantities.values()) + LAUNCH
    else:
        behind = LAUNCH + exchange_start(machine) + share / machine.exchange_bytes
        behind += multiplied(outputs // params.size, params, machine) if params.kind == "average" else 0
    held = np.max([s.held for s in plan.detail.stages], axis=0)
    copies = len({0, *passes})
    total = copies * (inputs + outputs) + float(held.sum()) + VERTEX_BYTES * plan.tiles
    highest = machine.memory_element + copies * share + float(held.max()) + END
    cycles_ = of_plans([plan] if 0 in passes else [], extra={FIXED: behind if 1 in passes else 0.0})
    return Benchmark(cycles_, _fixed(total), _fixed(highest))
