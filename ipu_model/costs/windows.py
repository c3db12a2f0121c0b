"""Pooling: windows that slide over an image, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op, Tensor


def forward(op: Op, ctx: Context) -> OpCost:
    window = op.params.get("window_dimensions", ())
    strides = op.params.get("window_strides") or (1,) * len(window)
    source = op.inputs[-1] if op.primitive == "select_and_gather_add" else op.inputs[0]
    base = 4 if "max" in op.primitive or "min" in op.primitive else 5
    return pool(source, op.output, window, strides, ctx, base, 3, 1, op.primitive)


def backward(op: Op, ctx: Context) -> OpCost:
    """Maximum pooling backward reads the input, the output and its gradient: ``7 + 5 m`` per piece."""
    grad, source = op.inputs[0], op.inputs[1]
    window, strides = op.params["window_dimensions"], op.params["window_strides"]
    return pool(source, grad, window, strides, ctx, 7, 5, 2, op.primitive)


def pool(
    source: Tensor, out: Tensor, window: Sequence[int], strides: Sequence[int], ctx: Context,
    base: int, each: int, passes: int, name: str,
) -> OpCost:  # fmt: skip
    """Worker: per row and kernel position ``20 + cv (3 + base + each m)``; halos of ``kernel - stride`` travel."""
    v = max(1, 8 // source.width)
    positions = math.prod(window)
    spread = ctx.spread(out)
    vectors = cdiv(spread.most, v)
    rows = max(1, cdiv(vectors, 8))
    per_worker = cdiv(rows, ctx.target.workers)
    piece = cdiv(vectors, rows)
    worker = 33 + per_worker * (13 + positions * (20 + 5 + base + each * max(0, piece - 1) + 3) + 3)
    overlap = math.prod((w / s for w, s in zip(window, strides, strict=True)), start=1.0)
    received = spread.most * math.prod(strides) * min(overlap, 4.0) * source.width * passes
    step = Superstep(
        "Pool", 13 + ctx.target.workers * worker, exchange=ctx.move(received), received=received * spread.tiles,
        tiles=spread.tiles, vertices=spread.tiles, vertex=f"popnn::{name}<{source.dtype}>", balance=spread.balance,
    )  # fmt: skip
    return OpCost((step,), flops=out.size * positions, temporary=received, outputs=(), layout="new")


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum",
                     "select_and_gather_add"), forward),
    **dict.fromkeys(("select_and_scatter_add", "select_and_scatter"), backward),
}  # fmt: skip
