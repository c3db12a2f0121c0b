"""Benchmark rows of layers: convolution, octave convolution, fully connected and matrix product."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from ipu_model.planner.conv_grid import SIZES
from ipu_model.planner.convolution import (
    ConvParams,
    Options,
    fully_connected_passes,
    matmul_params,
    plan_convolution,
    plan_matmul,
    reduce_tiles,
    scaled_add,
)
from ipu_model.planner.plan import Plan
from ipu_model.published.benchmark import Benchmark, Operands
from ipu_model.published.formula import Formula, of_plans
from ipu_model.target import Target

PASSES = ("training_fwd", "training_bwd", "training_wu")
MAX_TILE_NOTE = 24  # bytes of interleaved memory beside the largest partial results, in every row of the table


def _pair(value: int | list[int]) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (value, value)


def conv_params(p: dict[str, Any], data: str) -> ConvParams:
    """The forward convolution that the flags of the convolution benchmark describe."""
    padding = p.get("padding", 0)
    return ConvParams(
        p.get("batch-size", 1),
        _pair(p["field"]),
        _pair(p["kernel-size"]),
        p["input-channels"],
        p["output-channels"],
        p.get("conv-groups", 1),
        _pair(p.get("stride", 1)),
        _pair(p.get("padding-lower", padding)),
        _pair(p.get("padding-upper", padding)),
        _pair(p.get("in-dilation", 1)),
        _pair(p.get("kernel-dilation", 1)),
        data=data,
        output=data,
    )


def training_passes(params: ConvParams, target: Target, partials: str = "float") -> list[Plan]:
    """Forward, backward and weight update of a convolution."""
    convs = (params, params.backward(), params.weight_update())
    return [plan_convolution(c, target, Options(o, partials)) for c, o in zip(convs, PASSES, strict=True)]


def _operands(params: ConvParams) -> Operands:
    size = SIZES[params.data]
    points, outs = math.prod(params.field) * params.batch, math.prod(params.out) * params.batch
    return Operands(
        points * params.in_channels * params.groups * size,
        math.prod(params.kernel) * params.in_channels * params.out_channels * params.groups * size,
        outs * params.out_channels * params.groups * size,
    )


def conv(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """Forward; then backward and weight update with the scaled add into the weights."""
    params = conv_params(p, data)
    plans = training_passes(params, target, p.get("partials-type", "float"))
    operands = _operands(params)
    update = scaled_add(operands.weights // SIZES[data], target.machine, data)
    return _benchmark("conv", plans, [*plans, update], operands, 2, target)


def fully_connected(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """Forward; then backward and weight update of a dense layer, groups as given."""
    batch, ins, outs, groups = p["batch-size"], p["input-size"], p["output-size"], p.get("num-groups", 1)
    plans = list(fully_connected_passes(batch, ins, outs, groups, data, target.machine))
    operands = _operands(matmul_params(batch, ins, outs, groups, data))
    # a matrix product is a convolution whose batch is m and whose channels are k and n
    update = scaled_add(operands.weights // SIZES[data], target.machine, data)
    return _benchmark("fc", plans, [*plans, update], operands, 2, target)


def gemm(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """``C = beta*C + alpha*A*B``: one product and one scaled add."""
    m, k, n = p["m"], p["k"], p["n"]
    options = Options("none_matmul", p.get("partials-type", "float"))
    plans = [plan_matmul(m, k, n, target, p.get("groups", 1), data, options=options)]
    size = SIZES[data]
    operands = Operands((m * k + k * n) * size, 0, m * n * size)
    return _benchmark("gemm", plans, [*plans, scaled_add(m * n, target.machine, data)], operands, 1, target)


def _benchmark(
    family: str, plans: list[Plan], timed: list[Plan], operands: Operands, copies: int, target: Target
) -> Benchmark:
    tiles = target.tiles
    cycles = of_plans(timed)
    memory = {
        "inputs": operands.inputs,
        "weights": operands.weights,
        "outputs": operands.outputs,
        "temporary": max(p.temporary_bytes * p.tiles for p in plans),
        "tiles": tiles,
        "pass_tiles": sum(p.tiles for p in plans),
        "reduce_tiles": reduce_tiles(plans),
        "moved_tiles": sum(p.tiles for p in plans if p.tile_bytes["moved"] > 0),
    }
    total = Formula(({f"{family}.memory.{name}": value for name, value in memory.items()},))
    interleaved = max(p.interleaved_bytes for p in plans)
    variables = (copies * operands.inputs + operands.weights + 2 * operands.outputs) / tiles
    spread = {
        "conv.max_tile.code": 1.0,
        "conv.max_tile.temporary": max(p.temporary_bytes for p in plans),
        "conv.max_tile.variables": variables,
    }
    # vertices that need nothing interleaved still want their two operands in different memory elements
    apart = 2 * target.machine.memory_element + max(p.tile_bytes["weights"] for p in plans[:1])
    fixed = {"": MAX_TILE_NOTE + (target.machine.interleaved_start + interleaved if interleaved else apart)}
    return Benchmark(cycles, total, Formula((fixed, spread)))


def octave(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """Up to four convolutions between a fine and a coarse half of the channels, run side by side.

    They are planned together: the largest takes nearly all tiles and decides the time, so the row is that of the
    largest (between the fine halves, where both exist), stretched by a fitted factor, plus pooling and upsampling of
    the activations. A single convolution runs alone and is not stretched.

    Raises
    ------
    ValueError
        When a share of coarse channels is not between 0 and 1.
    """
    params = conv_params(p, data)
    parts = octave_parts(params, _share(p, "alpha-in"), _share(p, "alpha-out"))
    plans = training_passes(max(parts, key=lambda part: part.macs), target)
    operands = _operands(params)
    one = _benchmark("oct", plans, plans, operands, 2, target)
    quantities = dict(one.cycles.alternatives[0])
    if len(parts) == 1:
        return one
    quantities["conv.oct_activations"] = operands.inputs / target.tiles
    cycles = dataclasses.replace(one.cycles, alternatives=(quantities,), scale="conv.oct_scale")
    return dataclasses.replace(one, cycles=cycles)


def _share(p: dict[str, Any], name: str) -> float:
    """Share of coarse channels of the inputs or outputs; `alpha` where a side has none of its own."""
    share = p[name] if name in p else p["alpha"]
    if not 0 <= share <= 1:
        raise ValueError(f"oct_conv: {name} is {share}, a share of channels between 0 and 1")
    return share


def octave_parts(params: ConvParams, inputs: float, outputs: float) -> list[ConvParams]:
    """The convolutions of an octave convolution: fine to fine, fine to coarse, coarse to fine, coarse to coarse.

    Coarse channels have half the height and width; all but the first run there. Those without channels are left out.
    """
    coarse_in, coarse_out = int(params.in_channels * inputs), int(params.out_channels * outputs)
    half = tuple(n // 2 for n in params.field)
    found = []
    for ins, fine_in in ((params.in_channels - coarse_in, True), (coarse_in, False)):
        for outs, fine_out in ((params.out_channels - coarse_out, True), (coarse_out, False)):
            if ins and outs:
                field = params.field if fine_in and fine_out else half
                found.append(dataclasses.replace(params, field=field, in_channels=ins, out_channels=outs))
    return found


OPS: dict[str, Callable[[dict[str, Any], str, Target], Benchmark]] = {
    "conv": conv,
    "oct_conv": octave,
    "fc": fully_connected,
    "gemm": gemm,
}
