"""Steps that the walk adds to the jaxpr: host streams, streaming memory, and values passed into loops and branches."""

from __future__ import annotations

from ipu_model.costs.indexing import slice_cost
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op, Tensor


def _across(name: str, op: Op, data: Tensor, rate: float, ctx: Context) -> OpCost:
    """A transfer of ``bytes / rate`` seconds; of a sharded tensor each replica moves its own shard."""
    size = data.nbytes / op.params.get("shards", 1)
    return OpCost((Superstep(name, host=size / rate * ctx.target.clock_hz, received=size),), layout="linear")


def host_read(op: Op, ctx: Context) -> OpCost:
    """A stream from the host to the tiles, at the target's rate for reads."""
    return _across("StreamCopy/in", op, op.output, ctx.target.host_in_bytes_per_second, ctx)


def host_write(op: Op, ctx: Context) -> OpCost:
    """A stream from the tiles to the host, at the target's rate for writes."""
    return _across("StreamCopy/out", op, op.inputs[0], ctx.target.host_out_bytes_per_second, ctx)


def remote_read(op: Op, ctx: Context) -> OpCost:
    """From streaming memory to the tiles, at the rate of streaming memory."""
    return _across("RemoteBuffer/read", op, op.output, ctx.target.streaming_bytes_per_second, ctx)


def remote_write(op: Op, ctx: Context) -> OpCost:
    """From the tiles to streaming memory, at the rate of streaming memory."""
    return _across("RemoteBuffer/write", op, op.inputs[0], ctx.target.streaming_bytes_per_second, ctx)


def loop_slice(op: Op, ctx: Context) -> OpCost:
    """The part of a stacked operand that one pass of a loop reads, copied out at the loop's counter."""
    return OpCost((slice_cost(op.output, ctx, "dynamicSlice"),), layout="keep")


def loop_stack(op: Op, ctx: Context) -> OpCost:
    """The result of one pass of a loop, copied to its place in the stacked result."""
    return OpCost((slice_cost(op.inputs[0], ctx, "dynamicUpdate"),), layout="keep")


def handed_over(op: Op, ctx: Context) -> OpCost:
    """A copy on the tile: 8 bytes per cycle after about 100 cycles; pricing drops it when the value is in place."""
    data = op.inputs if op.primitive == "branch_result" else op.inputs[:1]
    most = sum(ctx.spread(t).most * t.width for t in data)
    tiles = max((ctx.spread(t).tiles for t in data), default=1)
    compute = 100 + most / ctx.target.memcpy_bytes_per_cycle
    return OpCost(
        (Superstep("Copy", compute, tiles=tiles, vertices=tiles, vertex="poplar_rt::Memcpy64Bit"),), layout="keep"
    )


RULES: dict[str, Rule] = {
    "host_read": host_read,
    "host_write": host_write,
    "remote_read": remote_read,
    "remote_write": remote_write,
    "loop_slice": loop_slice,
    "loop_stack": loop_stack,
    "loop_carry": handed_over,
    "branch_result": handed_over,
}
