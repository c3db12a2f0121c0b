"""Reductions: each tile adds up what it holds, then partial results meet in stages, as the planner says."""

from __future__ import annotations

from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.planner.reduction import plan_reduction
from ipu_model.walk.program import Op, Tensor

SLOWER = {"argmax": 3.0, "argmin": 3.0, "reduce_precision": 1.0}  # an index travels beside each value
LAUNCH = 0.4  # of what a stage costs: its compute set without the exchange before it


def price(op: Op, ctx: Context) -> OpCost:
    """Sum, maximum, ... over some axes."""
    source, out = op.inputs[0], op.outputs[0]
    if source.size == out.size or source.size == 0:
        return OpCost(view=True, layout="keep")
    axes = op.params.get("axes", op.params.get("dimensions", ()))
    return reduce_cost(source, tuple(axes), out, ctx, op.primitive)


def reduce_cost(source: Tensor, axes: tuple[int, ...], out: Tensor, ctx: Context, name: str) -> OpCost:
    """The plan's cycles less those that a whole program costs: here it is one step of a larger one."""
    plan = plan_reduction(source.shape, axes, ctx.target, "half" if source.width < 4 else "float")
    cycles = plan.breakdown(ctx.target)
    launch = LAUNCH * ctx.target.fitted.get("reduce.stages", 0.0)
    held = Superstep(
        "Reduce/onTile", launch + cycles["rows"] * SLOWER.get(name, 1.0), tiles=plan.tiles,
        vertices=plan.tiles, vertex=f"popops::Reduce<{name},{source.dtype}>", settled=True,
        balance=min(1.0, source.nbytes / max(1.0, plan.tiles * plan.tile_bytes["inputs"])),
    )  # fmt: skip
    steps = [held]
    spread = ctx.spread(out)
    if plan.quantities["stages"]:
        partials = plan.detail["outputs"] * 4.0 * plan.detail["stages"]
        steps.append(
            Superstep(
                "Reduce/stage", cycles["stages"], received=partials, tiles=spread.tiles, vertices=spread.tiles,
                vertex=f"popops::Reduce<{name},float32>", settled=True,
            )
        )  # fmt: skip
    temporary = 4.0 * min(plan.tile_bytes["inputs"] / source.width, plan.detail["outputs"])
    return OpCost(tuple(steps), flops=source.size, temporary=temporary, outputs=(spread,), layout="linear")


def argument(op: Op, ctx: Context) -> OpCost:
    """argmax and argmin."""
    return reduce_cost(op.inputs[0], tuple(op.params["axes"]), op.output, ctx, op.primitive)


REDUCTIONS = (
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
    "reduce",
)
RULES: dict[str, Rule] = {**dict.fromkeys(REDUCTIONS, price), "argmax": argument, "argmin": argument}
