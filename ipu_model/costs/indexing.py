"""Reads and writes at positions known only when the program runs: slices, gathers, scatters."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.planner.embedding import plan_embedding
from ipu_model.planner.plan import Plan
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
    return OpCost((slice_cost(op.output, ctx, "dynamicSlice"),), outputs=(ctx.spread(op.output),), layout="keep")


def dynamic_update(op: Op, ctx: Context) -> OpCost:
    """Writes the update over its place; the operand's memory is the result's."""
    return OpCost((slice_cost(op.inputs[1], ctx, "dynamicUpdate"),), elementwise=True, layout="keep")


def gather(op: Op, ctx: Context) -> OpCost:
    """Rows of a table by index (multiSlice), planned like an embedding."""
    table, out = op.inputs[0], op.output
    lookups = _lookups(op.inputs[1])
    if lookups == 1 or not out.size:
        return dynamic_slice(op, ctx)
    plan = _plan(table, out.size // lookups, lookups, ctx, update=False)
    q = plan.quantities
    step = Superstep(
        "multiSlice", q["slice"] + q.get("second_stage", 0.0) + q.get("copied_table", 0.0),
        exchange=_index_cycles(plan, ctx),
        received=4.0 * lookups * plan.tiles, tiles=plan.tiles, vertices=plan.tiles,
        vertex=f"popops::MultiSlice<{table.dtype}>",
    )  # fmt: skip
    return OpCost((step,), temporary=plan.temporary_bytes, outputs=(ctx.spread(out),), layout="linear")


def scatter(op: Op, ctx: Context) -> OpCost:
    """Updates of rows by index (multiUpdate, multiUpdateAdd): one worker per tile, every index in turn."""
    table, updates = op.inputs[0], op.inputs[2]
    lookups = _lookups(op.inputs[1])
    if lookups == 1 or not updates.size:
        return OpCost((slice_cost(updates, ctx, "dynamicUpdate"),), elementwise=True, layout="keep")
    plan = _plan(table, updates.size // lookups, lookups, ctx, update=True)
    step = Superstep(
        "multiUpdate", plan.quantities["update"] + plan.quantities.get("added_copies", 0.0),
        exchange=_index_cycles(plan, ctx) + ctx.move(updates.nbytes / plan.tiles),
        received=4.0 * lookups * plan.tiles + updates.nbytes, tiles=plan.tiles, vertices=plan.tiles,
        vertex=f"popops::MultiUpdateAdd<{table.dtype}>",
    )  # fmt: skip
    return OpCost((step,), temporary=plan.temporary_bytes, elementwise=True, layout="keep")


def _plan(table: Tensor, row: int, lookups: int, ctx: Context, update: bool) -> Plan:
    """The table as rows of what one index reads."""
    row = max(1, row)
    rows = max(1, table.size // row)
    return plan_embedding(rows, row, lookups, ctx.target, "half" if table.width < 4 else "float", update)


def _index_cycles(plan: Plan, ctx: Context) -> float:
    """Broadcasting the indices: a fitted share of a cycle per index, scaled by the exchange rate."""
    t = ctx.target
    rate = t.machine.exchange_bytes / t.exchange_bytes_per_cycle
    return plan.quantities["indices"] * t.fitted.get("embedding.indices", 1.0) * rate


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
