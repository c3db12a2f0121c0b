"""Reads and writes at positions known only when the program runs: slices, gathers, scatters."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.planner.embedding import plan_embedding
from ipu_model.planner.plan import Plan
from ipu_model.planner.steps import exchange_start
from ipu_model.walk.program import Op, Tensor

INDEX_BROADCAST_BYTES = 4


def slice_cost(moved: Tensor, ctx: Context, name: str, steps: int = 1) -> Superstep:
    """Dynamic slice along a dimension that stays on a tile: ``11 + 14 + 6 (41 + (27 + elements / 6 / v) k)``."""
    spread = ctx.spread(moved)
    v = max(1, 8 // moved.width)
    compute = 11 + 14 + ctx.target.workers * (41 + (27 + cdiv(spread.most, ctx.target.workers) // v) * steps)
    return Superstep(
        name, compute, exchange=ctx.move(INDEX_BROADCAST_BYTES), received=4.0 * spread.tiles, tiles=spread.tiles,
        vertices=spread.tiles, vertex=f"popops::DynamicSlice1d<{moved.dtype}>", balance=spread.balance,
    )  # fmt: skip


def dynamic_slice(op: Op, ctx: Context) -> OpCost:
    """Copy a slice out of the tiles that hold it; its position is known only when the program runs."""
    return OpCost((slice_cost(op.output, ctx, "dynamicSlice"),), outputs=(ctx.spread(op.output),), layout="keep")


def dynamic_update(op: Op, ctx: Context) -> OpCost:
    """Write the update into the operand, whose memory the result takes over."""
    return OpCost((slice_cost(op.inputs[1], ctx, "dynamicUpdate"),), elementwise=True, layout="keep")


def gather(op: Op, ctx: Context) -> OpCost:
    """Rows of a table by index (multiSlice), planned like an embedding."""
    table, out = op.inputs[0], op.output
    lookups = _lookups(op.inputs[1])
    if lookups == 1 or not out.size:
        return dynamic_slice(op, ctx)
    plan = _plan(table, out.size // lookups, lookups, ctx, update=False)
    step = _step("multiSlice", READ, plan, 4.0 * lookups * plan.tiles, f"MultiSlice<{table.dtype}>", ctx)
    return OpCost((step,), temporary=plan.temporary_bytes, outputs=(ctx.spread(out),), layout="linear")


def scatter(op: Op, ctx: Context) -> OpCost:
    """Updates of rows by index (multiUpdate, multiUpdateAdd): one worker per tile, every index in turn."""
    table, updates = op.inputs[0], op.inputs[2]
    lookups = _lookups(op.inputs[1])
    if lookups == 1 or not updates.size:
        return OpCost((slice_cost(updates, ctx, "dynamicUpdate"),), elementwise=True, layout="keep")
    plan = _plan(table, updates.size // lookups, lookups, ctx, update=True)
    received = 4.0 * lookups * plan.tiles + updates.nbytes
    step = _step("multiUpdate", WRITE, plan, received, f"MultiUpdateAdd<{table.dtype}>", ctx)
    return OpCost((step,), temporary=plan.temporary_bytes, elementwise=True, layout="keep")


def _plan(table: Tensor, row: int, lookups: int, ctx: Context, update: bool) -> Plan:
    """Plan of an embedding whose table rows hold the `row` elements that one index reads."""
    row = max(1, row)
    rows = max(1, table.size // row)
    return plan_embedding(rows, row, lookups, ctx.target, "half" if table.width < 4 else "float", update)


#: Of reading rows and of adding to them: the plan's quantities that are paid for, and the number of exchange start-ups.
READ = (frozenset({"slice", "second_stage", "index_map", "indices", "candidates", "table"}), 3)
WRITE = (frozenset({"update", "added_copies", "update_indices", "deltas"}), 4)


def _step(
    name: str, part: tuple[frozenset[str], int], plan: Plan, received: float, vertex: str, ctx: Context
) -> Superstep:
    """The superstep of only the reading or only the writing half of a plan, without the program launch."""
    names, exchanges = part
    cycles = {k: v for k, v in plan.breakdown(ctx.target).items() if k in names}
    moved = sum(v for k, v in cycles.items() if k in plan.exchange)
    exchanges += "candidates" in cycles
    exchanges += "table" in cycles
    return Superstep(
        name, sum(cycles.values()) - moved, exchange=moved + exchanges * exchange_start(ctx.target.machine),
        received=received, tiles=plan.tiles, vertices=plan.tiles, vertex=f"popops::{vertex}", settled=True,
    )  # fmt: skip


def _lookups(indices: Tensor) -> int:
    depth = indices.shape[-1] if indices.shape else 1
    return max(1, indices.size // max(1, depth))


RULES: dict[str, Rule] = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update,
    "gather": gather,
    "scatter": scatter,
    **{f"scatter{sign}{how}": scatter for sign in "-_" for how in ("add", "sub", "mul", "min", "max")},
}  # fmt: skip
