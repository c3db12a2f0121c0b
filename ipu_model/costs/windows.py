"""Pooling: windows that slide over an image, forward and backward, as the pooling planner splits them."""

from __future__ import annotations

import math

from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.planner.pooling import PoolParams, plan_pooling
from ipu_model.walk.program import Op, Tensor


def forward(op: Op, ctx: Context) -> OpCost:
    """Max, sum or average over windows, by the plan of the pooling planner."""
    source = op.inputs[-1] if op.primitive == "select_and_gather_add" else op.inputs[0]
    kind = "max" if "max" in op.primitive or "min" in op.primitive or "gather" in op.primitive else "sum"
    return _pool(op, source, kind, ctx, backward=False)


def backward(op: Op, ctx: Context) -> OpCost:
    """Maximum pooling backward reads the input, the output and its gradient."""
    return _pool(op, op.inputs[1], "max", ctx, backward=True)


def _pool(op: Op, source: Tensor, kind: str, ctx: Context, backward: bool) -> OpCost:
    p = op.params
    window = tuple(p.get("window_dimensions") or (1,) * len(source.shape))
    strides = tuple(p.get("window_strides") or (1,) * len(window))
    padding = tuple(p.get("padding") or ((0, 0),) * len(window))
    if not source.size or not op.output.size:
        return OpCost(outputs=(ctx.spread(op.output),), layout="linear")
    field = [d for d, (w, s) in enumerate(zip(window, strides, strict=True)) if w > 1 or s > 1] or [len(window) - 1]
    rest = [n for d, n in enumerate(source.shape) if d not in field]
    channels = rest[-1] if rest else 1
    params = PoolParams(
        batch=math.prod(rest[:-1]),
        channels=channels,
        field=tuple(source.shape[d] for d in field),
        kernel=tuple(window[d] for d in field),
        stride=tuple(strides[d] for d in field),
        pad_lower=tuple(padding[d][0] for d in field),
        pad_upper=tuple(padding[d][1] for d in field),
        kind=kind,
        data="half" if source.width < 4 else "float",
    )
    plan = plan_pooling(params, ctx.target, backward)
    cycles = plan.breakdown(ctx.target)
    step = Superstep(
        "Pool", cycles["vertex"], exchange=cycles["exchange"] + cycles["start"],
        received=plan.quantities["exchange"] * ctx.target.machine.exchange_bytes * plan.tiles, tiles=plan.tiles,
        vertices=plan.tiles, vertex=f"popnn::{'Pooling' if not backward else 'PoolingGrad'}<{kind},{source.dtype}>",
        settled=True,
    )  # fmt: skip
    flops = op.output.size * math.prod(window)
    return OpCost((step,), flops=flops, temporary=plan.temporary_bytes, outputs=(), layout="new")


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum",
                     "select_and_gather_add"), forward),
    **dict.fromkeys(("select_and_scatter_add", "select_and_scatter"), backward),
}  # fmt: skip
