"""Reductions: each tile reduces its own elements, then partial results are combined in the stages of the plan."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.planner.plan import Plan
from ipu_model.planner.reduction import plan_reduction
from ipu_model.planner.reduction.stages import Stage
from ipu_model.planner.reduction.vertices import SIZES
from ipu_model.planner.steps import exchange_start
from ipu_model.target import Target
from ipu_model.walk.program import Op, Tensor

#: What the library calls each operation. An index travels beside each value of argmax and argmin.
OPERATIONS = {
    "reduce_sum": "ADD", "reduce_prod": "MUL", "reduce_max": "MAX", "reduce_min": "MIN", "reduce_and": "AND",
    "reduce_or": "OR", "argmax": "MAX", "argmin": "MIN",
}  # fmt: skip
GRAINS = (8, 128)  # bytes that rows may be padded to: a vector, and the least that a tile gets of a tensor
SLOWER = {"argmax": 3.0, "argmin": 3.0}


def price(op: Op, ctx: Context) -> OpCost:
    """Sum, maximum, ... over some axes."""
    source, out = op.inputs[0], op.outputs[0]
    if source.size == out.size or source.size == 0:
        return OpCost(view=True, layout="keep")
    axes = op.params.get("axes", op.params.get("dimensions", ()))
    return reduce_cost(source, tuple(axes), out, ctx, op.primitive)


def reduce_cost(source: Tensor, axes: tuple[int, ...], out: Tensor, ctx: Context, name: str) -> OpCost:
    """Price of the plan's stages, without the program launch: a reduction is one step of a larger program here."""
    data = "half" if source.width < 4 else "float"
    shape = (*source.shape, source.parts) if source.parts > 1 else source.shape  # parts of a complex number stay apart
    plan = _plan(shape, axes, data, OPERATIONS.get(name, "ADD"), ctx.target)
    steps = tuple(_superstep(stage, source, name, ctx) for stage in plan.detail.stages)
    return OpCost(
        steps,
        flops=source.size * source.parts,
        temporary=plan.temporary_bytes,
        outputs=(ctx.spread(out),),
        layout="linear",
    )


def _plan(shape: tuple[int, ...], axes: tuple[int, ...], data: str, operation: str, target: Target) -> Plan:
    """The plan for a tensor dealt out in order, or the cheaper one of rows that are padded to whole grains.

    The library prices rows that begin in the middle of a vector or of a tile up to twenty times as much. What computes
    a tensor in a program leaves its rows whole, so no reduction is dearer than that of the next larger tensor.
    """
    last, tiles = shape[-1] * SIZES[data], target.machine.tiles
    shapes = [shape, *((*shape[:-1], cdiv(last, grain) * grain // SIZES[data]) for grain in GRAINS)]
    if 2 * shape[0] > tiles:
        shapes += [(cdiv(shape[0], tiles) * tiles, *wide[1:]) for wide in shapes[1:]]
    plans = [plan_reduction(each, axes, target, data, operation) for each in dict.fromkeys(shapes)]
    return min(plans, key=lambda plan: plan.cycles(target))


def _superstep(stage: Stage, source: Tensor, name: str, ctx: Context) -> Superstep:
    start = exchange_start(ctx.target.machine) if stage.received else 0.0
    return Superstep(
        f"Reduce/{stage.name}", stage.compute * SLOWER.get(name, 1.0), start + ctx.move(stage.received),
        received=stage.received_by_all, tiles=stage.tiles, vertices=int(stage.state.sum()),
        vertex=f"popops::Reduce<{name},{source.dtype}>", settled=True, balance=stage.balance,
    )  # fmt: skip


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
