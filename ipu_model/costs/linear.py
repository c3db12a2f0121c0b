"""Convolutions and matrix products: described to the planner, priced by its plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ipu_model.cost import cdiv
from ipu_model.costs.elementwise import cast
from ipu_model.costs.elementwise import price as elementwise
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.partition import Spread
from ipu_model.planner.convolution import (
    ConvParams,
    Options,
    Plan,
    fully_connected_passes,
    plan_convolution,
    plan_matmul,
    received_bytes,
)
from ipu_model.walk.program import Op, Tensor, tensor

# The planner's quantities by the superstep that they are part of.
COPIES = (
    "moved_operands",
    "moved_outputs",
    "regrouped",
    "activations",
    "tile_padding",
    "serial",
    "weight_transposes",
    "scattered",
    "grouped",
    "paddings",
)
EXCHANGES = ("input_exchange", "weight_exchange")
BATCHED = (((2,), (2,)), ((0,), (0,)))


def _sizes(shape: tuple[int, ...], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


def dot_general(op: Op, ctx: Context) -> OpCost:
    """A grouped product ``[g, m, k] x [g, k, n]``.

    A complex one is a real product of the parts, ``[m, 2 k] x [2 k, 2 n]``.
    """
    lhs, rhs = op.inputs[:2]
    (lc, rc), (lb, rb) = op.params["dimension_numbers"]
    k = _sizes(lhs.shape, lc) * lhs.parts
    groups = _sizes(lhs.shape, lb)
    m = math.prod(s for d, s in enumerate(lhs.shape) if d not in (*lc, *lb))
    n = math.prod(s for d, s in enumerate(rhs.shape) if d not in (*rc, *rb)) * rhs.parts
    if not (m and n and k and groups):
        return OpCost(outputs=(ctx.spread(op.output),), layout="linear")
    pass_ = _matmul_pass(op, ctx, groups, min((d for d in lc), default=0), lb)
    if pass_.endswith("_wu"):
        m, n = n, m  # JAX puts the gradient first; the library's update is [inputs, batch] x [batch, outputs]
    data = _data(lhs)
    plan = _product(m, k, n, groups, data, _options(op, ctx, pass_, data), ctx)
    return _priced(op, ctx, plan, 2 * groups * m * k * n, "matmulGrouped/Conv_1")


def scaled_dot(op: Op, ctx: Context) -> OpCost:
    """A product of blocks of small floats with a scale each: the chip multiplies halves, so blocks are scaled before.

    Operands become halves (those that have as many bits stay as they are), one pass over each multiplies by the scales.
    """
    numbers = op.params.get("dimension_numbers", BATCHED)  # of `jax.nn.scaled_matmul` both contract their last axis
    steps: list[Superstep] = []
    scaled: list[Tensor] = []
    for narrow, scale in zip(op.inputs[:2], op.inputs[2:], strict=True):
        wide = narrow if narrow.width > 1 else tensor(narrow.shape, "float16")
        if narrow.width < wide.width:
            steps += cast(Op("convert_element_type", (narrow,), (wide,), {}), ctx).supersteps
        steps += elementwise(Op("mul", (wide, scale), (wide,), {}), ctx).supersteps
        scaled.append(wide)
    numbered = {"dimension_numbers": numbers}
    product = dot_general(replace(op, primitive="dot_general", inputs=tuple(scaled), params=numbered), ctx)
    held = sum(ctx.spread(wide).most * wide.width for wide in scaled)
    return replace(
        product,
        supersteps=(*steps, *product.supersteps),
        flops=product.flops + sum(wide.size for wide in scaled),
        temporary=product.temporary + held,
    )


def symmetric_product(op: Op, ctx: Context) -> OpCost:
    """``alpha A A^T + beta C`` as a product, and a scaled add where `beta` is not zero."""
    a, c = op.inputs[:2]
    last, batch = len(a.shape) - 1, tuple(range(len(a.shape) - 2))
    numbers = {"dimension_numbers": (((last,), (last,)), (batch, batch))}
    product = dot_general(replace(op, primitive="dot_general", inputs=(a, a), params=numbers), ctx)
    if not op.params["beta"]:
        return product
    added = elementwise(Op("add", (op.output, c), op.outputs, {}), ctx)
    steps = (*product.supersteps, *added.supersteps)
    return replace(product, supersteps=steps, flops=product.flops + added.flops)


def ragged_dot(op: Op, ctx: Context) -> OpCost:
    """A ragged product, priced as one product per group with an equal share of the ragged dimension."""
    numbers = op.params["ragged_dot_dimension_numbers"]
    (lc, rc), (lb, rb) = numbers.dot_dimension_numbers
    lhs, rhs, sizes = op.inputs[:3]
    ragged = set(numbers.lhs_ragged_dimensions)
    groups = max(1, sizes.shape[-1])
    m = math.prod(s for d, s in enumerate(lhs.shape) if d not in (*lc, *lb))
    k = _sizes(lhs.shape, lc) * lhs.parts
    n = math.prod(s for d, s in enumerate(rhs.shape) if d not in (*rc, *rb, *numbers.rhs_group_dimensions)) * rhs.parts
    many = _sizes(lhs.shape, lb) * groups
    if not (m and n and k):
        return OpCost(outputs=(ctx.spread(op.output),), layout="linear")
    if ragged & set(lc):
        k = cdiv(k, groups)
    else:
        m = cdiv(m, groups)
    data = _data(lhs)
    plan = plan_matmul(m, k, n, ctx.target, many, data, options=_options(op, ctx, "none_matmul", data))
    return _priced(op, ctx, plan, 2 * many * m * k * n, "matmulGrouped/Conv_1")


def _product(m: int, k: int, n: int, groups: int, data: str, options: Options, ctx: Context) -> Plan:
    """Plan of a product; the three of a dense layer are planned together, as the library does by default."""
    if options == Options(options.pass_) and options.fully_connected:
        if options.pass_ == "fc_training_fwd":
            return fully_connected_passes(m, k, n, groups, data, ctx.target.machine)[0]
        if options.pass_ == "fc_training_bwd":
            return fully_connected_passes(m, n, k, groups, data, ctx.target.machine)[1]
        return fully_connected_passes(k, m, n, groups, data, ctx.target.machine)[2]
    return plan_matmul(m, k, n, ctx.target, groups, data, options=options)


def _matmul_pass(op: Op, ctx: Context, groups: int, contracted: int, batch: tuple[int, ...]) -> str:
    """The pass of a dense layer that a product is; the backward pass contracts the last axis of the gradient."""
    if groups > 1 or not ctx.training or not ctx.options.fully_connected_pass:
        return "none_matmul"
    if op.phase != "backward":
        return "fc_training_fwd"
    return "fc_training_wu" if contracted == len(batch) and len(op.inputs[0].shape) > 1 else "fc_training_bwd"


def convolution(op: Op, ctx: Context) -> OpCost:
    """A convolution of any number of dimensions: forward, input gradient or weight gradient."""
    p = op.params
    spec = p["dimension_numbers"]
    of_lhs: tuple[int, ...] = spec.lhs_spec
    of_rhs: tuple[int, ...] = spec.rhs_spec
    lhs, rhs = op.inputs[:2]
    if not op.output.size or not lhs.size:
        return OpCost(outputs=(ctx.spread(op.output),), layout="linear")
    groups = p["feature_group_count"] * p["batch_group_count"]
    data = _data(lhs)
    kernel = tuple(rhs.shape[d] for d in of_rhs[2:]) or (1,)
    beyond = _zero_padding(kernel, p)
    params = ConvParams(
        batch=lhs.shape[of_lhs[0]] // p["batch_group_count"],
        field=tuple(lhs.shape[d] for d in of_lhs[2:]) or (1,),
        kernel=kernel,
        in_channels=rhs.shape[of_rhs[1]] * lhs.parts,
        out_channels=rhs.shape[of_rhs[0]] // groups * rhs.parts,
        groups=groups,
        stride=tuple(p["window_strides"]),
        pad_lower=tuple(a for a, _ in p["padding"]),
        pad_upper=tuple(b - n for (_, b), n in zip(p["padding"], beyond, strict=False)),
        in_dilation=tuple(p["lhs_dilation"]),
        kernel_dilation=tuple(p["rhs_dilation"]),
        out_padding=beyond,
        data=data,
        output=data,
    )
    update = op.phase == "backward" and spec.lhs_spec[0] != 0
    pass_ = "training_wu" if update else "training_bwd" if op.phase == "backward" else _forward(ctx)
    plan = plan_convolution(params, ctx.target, _options(op, ctx, pass_, data))
    size = "x".join(str(rhs.shape[d]) for d in of_rhs[2:]) or "1"  # of an update, that of the gradient
    name = f"{'weightDeltas' if update else 'convolution'}/Conv_{size}"
    return _priced(op, ctx, plan, 2 * params.macs, name)


def _zero_padding(kernel: tuple[int, ...], p: Mapping[str, Any]) -> tuple[int, ...]:
    """Upper padding that yields only zeros of the result, which the library appends instead of computing them.

    The gradient of a strided convolution has it for the rows of the input that no window read.
    """
    padding, strides, dilation = p["padding"], p["window_strides"], p["rhs_dilation"]
    rows = zip(kernel, padding, strides, dilation, strict=False)
    return tuple(max(0, high - (k - 1) * d) if s == 1 else 0 for k, (_, high), s, d in rows)


def _forward(ctx: Context) -> str:
    return "training_fwd" if ctx.training else "none"


def _data(t: Tensor) -> str:
    return "half" if t.half or t.width == 1 else "float"


def _options(op: Op, ctx: Context, pass_: str, data: str) -> Options:
    partials = op.attributes.partials or ctx.options.partials
    proportion = op.attributes.available_memory
    return Options(
        pass_,  # pyright: ignore[reportArgumentType]
        partials if data == "half" else "float",
        ctx.options.available_memory if proportion is None else proportion,
    )


def _priced(op: Op, ctx: Context, plan: Plan, flops: float, name: str) -> OpCost:
    """The plan as supersteps, the memory it needs, and the mapping of its result."""
    out, split = op.output, plan.detail
    # serial steps over output channels each make a part of the output, those over input channels add to one
    most = min(out.size, max(1, math.ceil(split.tile["partials"] * split.out_serial / split.depth / out.parts)))
    used = min(ctx.target.tiles, max(1, min(plan.tiles, math.ceil(out.size / most))))
    return OpCost(
        tuple(_supersteps(op, ctx, plan, flops, name)), flops=flops, temporary=_temporary(plan),
        beside_outputs=_partial_results(plan), outputs=(Spread(used, most, out.size),), layout="new",
        interleaved=plan.interleaved_bytes,
    )  # fmt: skip


def _supersteps(op: Op, ctx: Context, plan: Plan, flops: float, name: str) -> Iterator[Superstep]:
    """Copies, then the product with its exchange, then the reduction of partials.

    Sync and set-up of the pass are in the fitted constant per pass; the exchange is priced with them.
    """
    cycles, quantities = plan.breakdown(ctx.target), plan.quantities
    data, psz = _data(op.inputs[0]), 4
    partials = _options(op, ctx, "none", data).partials
    everywhere = partial(Superstep, tiles=plan.tiles, vertices=plan.tiles, settled=True)
    if any(quantities[q] for q in COPIES):
        yield everywhere(f"{name}/PreArrange", sum(cycles[q] for q in COPIES), vertex="poplar_rt::DstStridedCopy")
    yield everywhere(
        f"{name}/Convolve", cycles["compute"] + cycles["passes"], exchange=sum(cycles[q] for q in EXCHANGES),
        received=(plan.tile_bytes["inputs"] + plan.tile_bytes["weights"]) * plan.tiles,
        vertex=_vertex(plan, data, partials, name), balance=_balance(plan, flops),
    )  # fmt: skip
    if quantities["reduce_stages"] or quantities["cast"]:
        yield everywhere(
            f"{name}/{'Reduce' if quantities['reduce_stages'] else 'Cast'}",
            cycles["reduce"] + cycles["cast"] + cycles["reduce_stages"], exchange=cycles["partial_exchange"],
            received=quantities["partial_exchange"] * psz * plan.tiles, vertex=f"poplin::ReduceAdd<{data},{partials}>",
        )  # fmt: skip


def _temporary(plan: Plan) -> float:
    """Temporary bytes less the operands' shares that already lie on the tile that uses them."""
    if plan.quantities["moved_operands"]:
        return plan.temporary_bytes
    return received_bytes(plan)


def _partial_results(plan: Plan) -> float:
    """Bytes beside the output while it is written: partials that are reduced or cast; 0 where there are none.

    Serial steps over output channels write a part of it at a time, beside all that a step needs.
    """
    if plan.detail.out_serial > 1:
        return _temporary(plan)
    finished = plan.quantities["reduce_stages"] or plan.quantities["cast"]
    return plan.tile_bytes["partials"] if finished else 0.0


def _vertex(plan: Plan, data: str, partials: str, name: str) -> str:
    """The vertex name that scripts search reports for: matrix products are always of kind 1x1Out."""
    if name.startswith("matmul"):
        return f"poplin::ConvPartial1x1Out<{data},{partials}>"
    v = plan.detail.vertex
    split = plan.detail
    one = all(k == 1 for k in split.problem.params.kernel) and v.method == "amp"
    kind = {"amp": "1x1Out" if one else "nx1", "slic": "1x4SLIC", "hmac": "HorizontalMac", "vmac": "VerticalMac",
            "outer": "OuterProduct"}.get(v.method, v.method)  # fmt: skip
    return f"poplin::ConvPartial{kind}<{data},{partials}>"


def _balance(plan: Plan, flops: float) -> float:
    """Balance of the tiles: useful multiplies over those of all tiles with the busiest tile's padded share each."""
    rate = max(1.0, float(plan.detail.vertex.rate))
    padded = plan.quantities["compute"] * rate * plan.tiles
    return min(1.0, flops / 2 / padded) if padded else 1.0


RULES: dict[str, Rule] = {
    "dot_general": dot_general, "ragged_dot_general": ragged_dot, "conv_general_dilated": convolution,
    **dict.fromkeys(("scaled_dot", "scaled_matmul_wrapper"), scaled_dot), "symmetric_product": symmetric_product,
}  # fmt: skip
