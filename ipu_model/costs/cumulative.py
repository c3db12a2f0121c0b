"""Cumulative operations: a scan on each tile, a scan over the tiles' totals, and an addition of the total before."""

from __future__ import annotations

import math

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.partition import Spread
from ipu_model.walk.program import Op

CYCLES = {"cumsum": 2.0, "cumprod": 2.0, "cummax": 3.0, "cummin": 3.0, "cumlogsumexp": 20.0}


def price(op: Op, ctx: Context) -> OpCost:
    """A scan of each tile's elements, ``log2`` steps over the totals of the tiles of a row, and one addition."""
    source = op.inputs[0]
    spread = ctx.spread(source)
    axis: int = op.params["axis"]
    length = source.shape[axis] if source.shape else 1
    rows = max(1, source.size // max(1, length))
    per_op = CYCLES[op.primitive]
    workers = ctx.target.workers
    local = workers * (20 + per_op * cdiv(spread.most, min(workers, max(1, rows))))
    parts = [_step("Scan", local, spread, source.dtype, op)]
    apart = min(spread.tiles, max(1, cdiv(length, max(1, spread.most))))
    if apart > 1:
        hops = math.ceil(math.log2(apart))
        each = cdiv(rows, max(1, spread.tiles // apart)) * 4
        parts.append(Superstep(
            "Scan/totals", workers * (20 + per_op * cdiv(each // 4, workers)), exchange=ctx.move(each),
            received=float(each * spread.tiles), tiles=spread.tiles, vertices=spread.tiles,
            vertex=f"popops::Scan<{op.primitive},{source.dtype}>", times=hops,
        ))  # fmt: skip
        parts.append(_step("Scan/add", workers * (28 + cdiv(spread.most, workers)), spread, source.dtype, op))
    return OpCost(tuple(parts), flops=source.size, outputs=(spread,), layout="keep")


def _step(name: str, compute: float, spread: Spread, dtype: str, op: Op) -> Superstep:
    return Superstep(
        name, compute, tiles=spread.tiles, vertices=spread.tiles, vertex=f"popops::Scan<{op.primitive},{dtype}>",
        balance=spread.balance,
    )  # fmt: skip


RULES: dict[str, Rule] = dict.fromkeys(CYCLES, price)
