"""Reductions: partial sums where the data are, then one or more stages of exchange and reduction."""

from __future__ import annotations

import math

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.partition import Spread
from ipu_model.walk.program import Op, Tensor, tensor

CYCLES_PER_STEP = {"reduce_prod": 1, "argmax": 2, "argmin": 2}


def price(op: Op, ctx: Context) -> OpCost:
    """Sum, maximum, ... over some axes.

    Stages: each tile reduces what it holds; when outputs are spread over several tiles, their partials travel, in two
    hops when more than ``2 sqrt(tiles)`` tiles hold partials of one output.
    """
    source, out = op.inputs[0], op.outputs[0]
    if source.size == out.size or source.size == 0:
        return OpCost(view=True, layout="keep")
    return reduce_cost(source, out, ctx, op.primitive, CYCLES_PER_STEP.get(op.primitive, 1))


def reduce_cost(source: Tensor, out: Tensor, ctx: Context, name: str, cycles: float = 1) -> OpCost:
    held, spread = ctx.spread(source), ctx.spread(out)
    factor = source.size // max(1, out.size)
    sources = min(held.tiles, factor, max(1, held.tiles * factor // source.size * out.size + held.tiles // out.size))
    columns = max(1, min(out.size, cdiv(held.most, factor)))
    steps = [_reduce("Reduce/onTile", ctx, held, held.most, columns, source, cycles, name)]
    while sources > 1:
        into = 1 if sources < 2 * math.sqrt(ctx.tiles) else math.isqrt(sources)
        hop = cdiv(sources, into)
        each = cdiv(out.size * sources, ctx.tiles * hop) * hop if into > 1 else hop * cdiv(out.size, spread.tiles)
        steps.append(_stage(ctx, each, out, hop, name, cycles, max(1, min(ctx.tiles, out.size * into))))
        sources = into
    temporary = columns * 4 if len(steps) > 1 else 0
    return OpCost(tuple(steps), flops=source.size, temporary=temporary, outputs=(spread,), layout="linear")


def _reduce(
    label: str, ctx: Context, held: Spread, n: int, columns: int, t: Tensor, cycles: float, name: str
) -> Superstep:
    """Bundles of the vertices that reduce `n` elements of a tile into `columns`."""
    accumulators = 8 if t.half else 4
    per_worker = cdiv(n, ctx.target.workers)
    bundles = 33 + 12 * cdiv(columns, ctx.target.workers) + cycles * per_worker / min(accumulators, max(1, 8 // t.width))
    return Superstep(
        label, ctx.target.supervisor_cycles + ctx.target.workers * bundles, tiles=held.tiles,
        vertices=held.tiles * ctx.target.workers, vertex=f"popops::Reduce<{name},{t.dtype}>", balance=held.balance,
    )  # fmt: skip


def _stage(ctx: Context, each: int, out: Tensor, hop: int, name: str, cycles: float, tiles: int) -> Superstep:
    compute = ctx.target.workers * (33 + cycles * cdiv(each, ctx.target.workers) / 2)
    return Superstep(
        "Reduce/stage", compute, exchange=ctx.move(each * 4), received=each * 4 * tiles, tiles=tiles, vertices=tiles,
        vertex=f"popops::Reduce<{name},float32>",
    )  # fmt: skip


def argument(op: Op, ctx: Context) -> OpCost:
    """argmax and argmin: the reduction carries an index beside each value."""
    source = tensor(op.inputs[0].shape, "float32")
    return reduce_cost(source, op.output, ctx, op.primitive, 3)


REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "reduce")
RULES: dict[str, Rule] = {**dict.fromkeys(REDUCTIONS, price), "argmax": argument, "argmin": argument}
