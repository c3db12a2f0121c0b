"""Primitives that only rename or move elements. Views are free; a reader that needs another layout pays for it."""

from __future__ import annotations

from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op


def view(op: Op, ctx: Context) -> OpCost:
    """A tensor expression over the same memory: nothing runs."""
    return OpCost(view=True, layout="keep")


def permuted(op: Op, ctx: Context) -> OpCost:
    """A transpose renames elements at no cost; a reader that needs another order pays for the exchange."""
    return OpCost(view=True, layout="permute")


def copied(op: Op, ctx: Context) -> OpCost:
    """A new tensor made of the operands: an exchange into the linear mapping of the result."""
    return rearranged(op, ctx, op.primitive)


def rearranged(op: Op, ctx: Context, name: str) -> OpCost:
    """Move every element to its place in the result's linear mapping: an exchange, then a strided copy."""
    spread = ctx.spread(op.output)
    width = op.output.width
    step = Superstep(
        f"Copy/{name}",
        compute=spread.most * width / ctx.target.memcpy_bytes_per_cycle,
        exchange=ctx.move(spread.most * width),
        received=op.output.nbytes,
        tiles=spread.tiles,
        vertices=spread.tiles,
        vertex="poplar_rt::DstStridedCopy",
        balance=spread.balance,
    )
    return OpCost((step,), outputs=(spread,), layout="linear")


def filled(op: Op, ctx: Context) -> OpCost:
    """iota and empty tensors: written in place on each tile."""
    spread = ctx.spread(op.output)
    v = max(1, ctx.target.machine.vector_bytes // op.output.width)
    compute = ctx.target.supervisor_cycles + 10 + 4 + 3 * -(-spread.most // v)
    step = Superstep(
        "Fill", compute, tiles=spread.tiles, vertices=spread.tiles, vertex=f"popops::{op.primitive.title()}",
        balance=spread.balance,
    )  # fmt: skip
    return OpCost((step,), outputs=(spread,), layout="linear")


def nothing(op: Op, ctx: Context) -> OpCost:
    """Primitives that only mark something and do no work on the device."""
    return OpCost(view=bool(op.inputs), layout="keep")


VIEWS = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "split", "bitcast_convert_type", "copy_p",
         "broadcast_to", "unstack")  # fmt: skip
MARKS = (
    "stop_gradient",
    "sharding_constraint",
    "device_put",
    "create_token",
    "after_all",
    "optimization_barrier",
    "name",
    "platform_index",
    "pvary",
    "random_wrap",
    "random_unwrap",
    "axis_index",
    "copy",
    "empty",
    "empty2",
    "layout_constraint",
    "split_group",
    "mark",
    "reduced_vary_cast",
    "pbroadcast",
    "to_edtype",
    "from_edtype",
    "reshard",
    "shard_alike",
    "pin",
    "unpin",
    "tie",
    "add_dependency",
    "dimension_size",
    "debug_print",
    "debug_callback",
    "pure_callback",
    "io_callback",
    "dce_sink",
    "inspect_sharding",
    "shape_assertion",
)
RULES: dict[str, Rule] = {
    **dict.fromkeys(VIEWS, view),
    **dict.fromkeys(MARKS, nothing),
    "transpose": permuted,
    "rev": permuted,
    "concatenate": copied,
    "stack": copied,
    "pad": copied,
    "tile": copied,
    "roll": copied,
    "iota": filled,
    "zeros_like": filled,
}
