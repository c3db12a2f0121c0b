"""Reads and writes at positions known only when the program runs: slices, gathers, scatters."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.layout import rearranged
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
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
    """Rows of a table by index (multiSlice): columns spread over tiles, rows of one column range by a worker each.

    Every tile looks at ``lookups`` indices: ``6 (16 + cdiv(lookups, 6) (19 + 3 cdiv(row, v)))`` cycles.
    """
    table, indices, out = op.inputs[0], op.inputs[1], op.output
    lookups = _lookups(indices)
    row = max(1, out.size // max(1, lookups))
    if lookups == 1:
        return dynamic_slice(op, ctx)
    columns = min(ctx.tiles, max(1, row * table.width // 4))
    groups = min(lookups, max(1, ctx.tiles // columns))
    per_tile, width = cdiv(lookups, groups), cdiv(row, columns)
    v = max(1, 8 // table.width)
    workers = ctx.target.workers
    step = Superstep(
        "multiSlice",
        compute=workers * (16 + cdiv(per_tile, workers) * (19 + 3 * cdiv(width, v))),
        exchange=ctx.move(per_tile * 4 + (cdiv(table.nbytes, ctx.tiles) if groups > 1 else 0)),
        received=4.0 * per_tile * columns * groups,
        tiles=columns * groups,
        vertices=columns * groups * workers,
        vertex=f"popops::MultiSlice<{table.dtype}>",
    )
    return OpCost((step,), temporary=per_tile * 4, outputs=(ctx.spread(out),), layout="linear")


def scatter(op: Op, ctx: Context) -> OpCost:
    """Updates of rows by index (multiUpdate, multiUpdateAdd): one worker per tile, every index in turn."""
    table, indices, updates = op.inputs[0], op.inputs[1], op.inputs[2]
    lookups = _lookups(indices)
    row = max(1, updates.size // max(1, lookups))
    if lookups == 1:
        return OpCost((slice_cost(updates, ctx, "dynamicUpdate"),), elementwise=True, layout="keep")
    elements = max(1, 4 // table.width)
    columns = min(ctx.tiles, max(1, row // elements))
    groups = max(1, min(ctx.tiles // columns, lookups))
    width = cdiv(row, columns)
    step = Superstep(
        "multiUpdate",
        compute=ctx.target.workers * (18 + lookups * (12 + 3 * (cdiv(width, elements) - 1)) / 1),
        exchange=ctx.move(lookups * 4 + lookups * width * table.width),
        received=float(lookups * 4 * columns * groups + updates.nbytes),
        tiles=columns * groups,
        vertices=columns * groups,
        vertex=f"popops::MultiUpdateAdd<{table.dtype}>",
    )
    return OpCost((step,), temporary=lookups * (4 + 4 * width), elementwise=True, layout="keep")


def _lookups(indices: Tensor) -> int:
    depth = indices.shape[-1] if indices.shape else 1
    return max(1, indices.size // max(1, depth))


def copy_rows(op: Op, ctx: Context) -> OpCost:
    return rearranged(op, ctx, op.primitive)


RULES: dict[str, Rule] = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update,
    "gather": gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "scatter-min", "scatter-max",
                     "scatter_min", "scatter_max", "scatter-sub", "scatter_sub"), scatter),
}  # fmt: skip
