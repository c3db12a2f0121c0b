"""The default price of primitives without a cost rule: conservative, and every report lists such primitives by name."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Superstep
from ipu_model.walk.program import Op

CYCLES_PER_ELEMENT = 20
STATEMENT = (
    "no rule: priced as an exchange of all its operands and results over the tiles that hold them, and "
    f"{CYCLES_PER_ELEMENT} worker bundles per element"
)


def price(op: Op, ctx: Context) -> OpCost:
    """Every operand and result crosses the exchange once; each element costs a slow scalar loop."""
    data = (*op.inputs, *op.outputs)
    largest = max(data, key=lambda t: t.size, default=None)
    if largest is None:
        return OpCost((Superstep(op.primitive, 1000.0, tiles=1, vertices=1, vertex=op.primitive),), known=False)
    spread = ctx.spread(largest)
    per_tile = sum(ctx.spread(t).most * t.width for t in data)
    compute = 100 + ctx.target.workers * CYCLES_PER_ELEMENT * cdiv(spread.most, ctx.target.workers)
    step = Superstep(
        op.primitive, compute, exchange=ctx.move(per_tile), received=float(sum(t.nbytes for t in data)),
        tiles=spread.tiles, vertices=spread.tiles, vertex=f"default::{op.primitive}", balance=spread.balance,
    )  # fmt: skip
    return OpCost(
        (step,), flops=largest.size, temporary=per_tile, outputs=tuple(ctx.spread(t) for t in op.outputs),
        layout="linear", known=False,
    )  # fmt: skip
