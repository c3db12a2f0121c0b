"""Collectives between replicas, over the IPU-Links as a ring or a tree."""

from __future__ import annotations

import math
from dataclasses import replace

from ipu_model.costs import reduction
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op

# Share of the data that crosses each link of a ring, as a multiple of (n - 1) / n, and hops in units of (n - 1).
RING = {"psum": (2, 2), "psum2": (2, 2), "psum_invariant": (2, 2), "pmax": (2, 2), "pmin": (2, 2), "pmean": (2, 2),
        "reduce_scatter": (1, 1), "psum_scatter": (1, 1), "all_gather": (1, 1), "all_gather_invariant": (1, 1),
        "all_to_all": (1, 1), "ragged_all_to_all": (1, 1)}  # fmt: skip
# Primitives of each kind of collective that may be merged into one, by the names of `ModelOptions.merge_collectives`.
MERGED = {"all_reduce": {"psum", "psum2", "psum_invariant", "pmax", "pmin", "pmean"},
          "reduce_scatter": {"reduce_scatter", "psum_scatter"},
          "all_gather": {"all_gather", "all_gather_invariant"}}  # fmt: skip

ON_CHIP = {"pmax": "reduce_max", "pmin": "reduce_min"}


def price(op: Op, ctx: Context) -> OpCost:
    """A ring between replicas; over axes of the operands, as `jax.vmap` leaves them, a reduction on the chip before."""
    axes = tuple(axis for axis in op.params.get("axes", ()) if isinstance(axis, int))
    if not axes:
        return _ring(op, ctx)
    name = ON_CHIP.get(op.primitive, "reduce_sum")
    parts = [
        reduction.price(Op(name, (source,), (out,), {"axes": axes}), ctx)
        for source, out in zip(op.inputs, op.outputs, strict=True)
    ]
    parts.append(_ring(replace(op, inputs=op.outputs), ctx))
    return OpCost(
        tuple(step for part in parts for step in part.supersteps), flops=sum(part.flops for part in parts),
        temporary=max(part.temporary for part in parts), outputs=tuple(ctx.spread(out) for out in op.outputs),
        layout="linear",
    )  # fmt: skip


def _ring(op: Op, ctx: Context) -> OpCost:
    """Ring: ``times (n - 1) / n bytes / link rate + hops latency``; a tree halves the hops to ``log2 n``.

    The latency of a hop is one external sync.
    """
    n = op.params.get("axis_size", ctx.options.replicas)
    if n <= 1:
        return OpCost(view=True, layout="keep")
    times, _ = RING[op.primitive]
    data = max(sum(t.nbytes for t in op.inputs), sum(t.nbytes for t in op.outputs))
    t = ctx.target
    rate = t.link_rate / t.clock_hz
    wire = times * (n - 1) / n * data
    if ctx.options.all_reduce == "tree":
        wire = times * data
    step = Superstep(
        f"Collective/{op.primitive}", compute=data / ctx.tiles / t.load_bytes_per_cycle,
        inter_ipu=wire / rate + latency(op, ctx), received=wire, tiles=ctx.tiles, vertices=ctx.tiles,
        vertex="gcl::Reduce",
    )  # fmt: skip
    return OpCost((step,), flops=data / 4, temporary=data / ctx.tiles / n, layout="keep")


def latency(op: Op, ctx: Context) -> float:
    """Latency in cycles of one collective over the ring or the tree, without its data."""
    n = op.params.get("axis_size", ctx.options.replicas)
    hops = RING[op.primitive][1]
    steps = hops * (n - 1) if ctx.options.all_reduce == "ring" else hops * math.ceil(math.log2(n))
    return steps * ctx.target.external_sync_cycles


def permute(op: Op, ctx: Context) -> OpCost:
    """A permutation between replicas: one hop that carries all of the data."""
    n = op.params.get("axis_size", ctx.options.replicas)
    if n <= 1:
        return OpCost(view=True, layout="keep")
    rate = ctx.target.link_rate / ctx.target.clock_hz
    data = sum(t.nbytes for t in op.inputs)
    step = Superstep(
        "Collective/ppermute", inter_ipu=data / rate + ctx.target.external_sync_cycles, received=float(data)
    )
    return OpCost((step,), temporary=data / ctx.tiles, layout="keep")


RULES: dict[str, Rule] = {**dict.fromkeys(RING, price), "ppermute": permute}
