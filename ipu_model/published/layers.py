"""Benchmark rows of layers: convolution, fully connected and matrix product."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from ipu_model.planner.conv_grid import SIZES, Split
from ipu_model.planner.convolution import (
    ConvParams,
    Options,
    fully_connected_passes,
    matmul_params,
    plan_convolution,
    plan_matmul,
    scaled_add,
)
from ipu_model.planner.plan import Plan
from ipu_model.published.benchmark import Benchmark, Operands
from ipu_model.published.formula import of_plans
from ipu_model.published.layer_memory import Layer, highest, total
from ipu_model.published.words import whole_program
from ipu_model.target import Target

PASSES = ("training_fwd", "training_bwd", "training_wu")
ALL = (0, 1, 2)


def _sides(value: int | list[int], count: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (value,) * count


def conv_params(p: dict[str, Any], data: str) -> ConvParams:
    """The forward convolution that the flags of the convolution benchmark describe."""
    padding = p.get("padding", 0)
    dims = next((len(p[name]) for name in ("field", "kernel-size") if isinstance(p[name], list)), 2)
    sides = {"stride": 1, "padding-lower": padding, "padding-upper": padding, "in-dilation": 1, "kernel-dilation": 1}
    return ConvParams(
        p.get("batch-size", 1),
        _sides(p["field"], dims),
        _sides(p["kernel-size"], dims),
        p["input-channels"],
        p["output-channels"],
        p.get("conv-groups", p.get("num-groups", 1)),
        *(_sides(p.get(name, default), dims) for name, default in sides.items()),
        data=data,
        output=data,
    )


def training_passes(
    params: ConvParams, target: Target, partials: str = "float", proportion: float = Options.available_memory
) -> list[Plan]:
    """Forward, backward and weight update of a convolution."""
    convs = (params, params.backward(), params.weight_update())
    return [plan_convolution(c, target, Options(o, partials, proportion)) for c, o in zip(convs, PASSES, strict=True)]


def operands_of(params: ConvParams) -> Operands:
    """Bytes of the tensors of a convolution."""
    size = SIZES[params.data]
    points, outs = math.prod(params.field) * params.batch, math.prod(params.out) * params.batch
    return Operands(
        points * params.in_channels * params.groups * size,
        math.prod(params.kernel) * params.in_channels * params.out_channels * params.groups * size,
        outs * params.out_channels * params.groups * size,
    )


def conv(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """Forward; then backward and weight update with the scaled add into the weights."""
    how = (p.get("partials-type", "float"), p.get("parts", ALL), _proportion(p))
    return conv_layer(conv_params(p, data), target, *how)


def _proportion(p: dict[str, Any]) -> float:
    """Share of tile memory that temporary data of a plan may take."""
    return float(p.get("available-memory-proportion", Options.available_memory))


def conv_layer(
    params: ConvParams, target: Target, partials: str = "float", passes: tuple[int, ...] = ALL,
    proportion: float = Options.available_memory,
) -> Benchmark:  # fmt: skip
    """The benchmark of a convolution, or of some of its passes."""
    plans = training_passes(params, target, partials, proportion)
    return _trained("conv", plans, params, passes, target, compiled=True)


def _trained(
    family: str, plans: Sequence[Plan], params: ConvParams, passes: tuple[int, ...], target: Target, compiled: bool
) -> Benchmark:
    """The chosen passes; gradients live where any but the forward pass runs, and an update is added to the weights."""
    chosen, operands, data = [plans[i] for i in passes], operands_of(params), params.data
    layer = Layer(family, _alone(chosen), operands, compiled, copies=1 if passes == (0,) else 2)
    update = [scaled_add(operands.weights // SIZES[data], target.machine, data)] if 2 in passes else []
    return _benchmark([*chosen, *update], layer, target, params, len(passes))


def fully_connected(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """Forward; then backward and weight update of a dense layer, groups as given."""
    batch, ins, outs, groups = p["batch-size"], p["input-size"], p["output-size"], p.get("num-groups", 1)
    plans = list(fully_connected_passes(batch, ins, outs, groups, data, target.machine))
    # a matrix product is a convolution whose batch is m and whose channels are k and n
    params = matmul_params(batch, ins, outs, groups, data)
    return _trained("fc", plans, params, p.get("parts", ALL), target, compiled=False)


def gemm(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """``C = beta*C + alpha*A*B``: one product and one scaled add."""
    whole_program("gemm", p, (0,))
    m, k, n, groups = p["m"], p["k"], p["n"], p.get("num-groups", 1)
    options = Options("none_matmul", p.get("partials-type", "float"), _proportion(p))
    plans = [plan_matmul(m, k, n, target, groups, data, options=options)]
    size = groups * SIZES[data]
    layer = Layer("gemm", _alone(plans), Operands((m * k + k * n) * size, 0, m * n * size), compiled=True, copies=1)
    timed = [*plans, scaled_add(groups * m * n, target.machine, data)]
    return _benchmark(timed, layer, target, matmul_params(m, k, n, groups, data), 1)


def _alone(plans: Sequence[Plan]) -> list[list[Split]]:
    return [[plan.detail] for plan in plans]


def _benchmark(timed: Sequence[Plan], layer: Layer, target: Target, params: ConvParams, passes: int) -> Benchmark:
    flop, data = 2.0 * params.macs * passes, params.data  # a backward pass counts as the forward one
    work = {"flop": flop, "item": float(params.batch), "share": flop / target.peak_flops(data)}
    cycles = dataclasses.replace(of_plans(timed), work=work)
    return Benchmark(cycles, total(layer, target), highest(layer, target))


OPS: dict[str, Callable[[dict[str, Any], str, Target], Benchmark]] = {
    "conv": conv,
    "fc": fully_connected,
    "gemm": gemm,
}
