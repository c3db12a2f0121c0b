"""Convolutions and matrix products."""

from __future__ import annotations

import math

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op


def dot_general(op: Op, ctx: Context) -> OpCost:
    (lc, _), (lb, _) = op.params["dimension_numbers"]
    lhs = op.inputs[0]
    k = math.prod(lhs.shape[d] for d in lc)
    return _product(op, ctx, op.output.size * k, "matmulGrouped/Conv_1/Convolve")


def convolution(op: Op, ctx: Context) -> OpCost:
    spec = op.params["dimension_numbers"].rhs_spec
    kernel = op.inputs[1].shape
    macs = op.output.size * math.prod(kernel[d] for d in spec[1:])
    return _product(op, ctx, macs, "convolution/Convolve")


def _product(op: Op, ctx: Context, macs: int, name: str) -> OpCost:
    data = "half" if op.inputs[0].half else "float"
    partials = (op.attributes.partials or ctx.options.partials) if data == "half" else "float"
    rate = ctx.target.peak_flops(data, partials) / 2 / ctx.target.clock_hz
    moved = sum(t.nbytes for t in op.inputs) * 4 / ctx.tiles
    step = Superstep(name, macs / rate / 0.7 + 1300, exchange=ctx.move(moved), received=moved * ctx.tiles,
                     tiles=min(ctx.tiles, cdiv(macs, 64)), vertices=ctx.tiles,
                     vertex=f"poplin::ConvPartial1x1Out<{data},{partials}>")  # fmt: skip
    return OpCost((step,), flops=2 * macs, temporary=moved, layout="new")


RULES: dict[str, Rule] = {"dot_general": dot_general, "conv_general_dilated": convolution}
