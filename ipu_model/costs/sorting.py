"""Sorting networks: compare-and-swap steps, with an exchange while the distance exceeds a tile's share."""

from __future__ import annotations

import math
from dataclasses import replace

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op, Tensor


def network(source: Tensor, length: int, steps: int, arrays: int, ctx: Context) -> OpCost:
    """`steps` compare-and-swap steps over rows of `length`: worker ``23 + 4 + 8 + 11 (m - 1)`` for m pairs."""
    spread = ctx.spread(source)
    pairs = max(1, cdiv(spread.most, 2))
    m = cdiv(pairs, ctx.target.workers)
    compute = 20 + ctx.target.workers * (23 + 4 + (8 + 11 * (m - 1)) * arrays)
    local = max(0, int(math.log2(max(1, spread.most))))
    levels = max(1, math.ceil(math.log2(max(2, length))))
    remote = sum(max(0, k - local) for k in range(1, levels + 1)) * steps // max(1, levels * (levels + 1) // 2)
    moved = spread.most * source.width // source.parts * arrays
    swap = Superstep(
        "CompareAndSwap", compute, tiles=spread.tiles, vertices=spread.tiles * ctx.target.workers,
        vertex=f"popops::CompareAndSwapAtDistance<{source.dtype}>",
        balance=spread.balance, times=max(1, steps - remote),
    )  # fmt: skip
    apart = Superstep(
        "CompareAndSwap/exchanged", compute, exchange=ctx.move(moved), received=source.nbytes * arrays,
        tiles=spread.tiles, vertices=spread.tiles * ctx.target.workers, vertex=swap.vertex, balance=spread.balance,
        times=remote,
    )  # fmt: skip
    parts = (swap, apart) if remote else (swap,)
    return OpCost(parts, temporary=moved, outputs=(), layout="linear", flops=0)


def sort(op: Op, ctx: Context) -> OpCost:
    """Bitonic sort: ``log2(n) (log2(n) + 1) / 2`` steps."""
    source = op.inputs[0]
    axis: int = op.params.get("dimension", -1)
    n = source.shape[axis] if source.shape else 1
    levels = max(1, math.ceil(math.log2(max(2, n))))
    return network(source, n, levels * (levels + 1) // 2, sum(each.parts for each in op.inputs), ctx)


def top_k(op: Op, ctx: Context) -> OpCost:
    """Sort blocks of k, then merge pairs of blocks and keep the better half until one is left.

    Each round works on half of the data of the one before, so all rounds together cost two of the first, and the launch
    of their steps.
    """
    source, k = op.inputs[0], op.params.get("k", 1)
    axis: int = op.params.get("axis", -1)
    n = source.shape[axis] if source.shape else 1
    block = max(1, math.ceil(math.log2(max(2, k))))
    rounds = max(0, math.ceil(math.log2(max(1, n / 2**block))))
    blocks = network(source, n, block * (block + 1) // 2 + 2 * (block + 1) * (rounds > 0), 2, ctx)
    launches = Superstep(
        "CompareAndSwap/merge",
        20 + ctx.target.workers * 35,
        tiles=blocks.supersteps[0].tiles,
        vertices=blocks.supersteps[0].vertices,
        vertex=blocks.supersteps[0].vertex,
        times=rounds * (block + 1),
    )
    return replace(blocks, supersteps=(*blocks.supersteps, launches)) if rounds else blocks


RULES: dict[str, Rule] = {"sort": sort, "top_k": top_k, "approx_top_k": top_k}
