"""Elementwise primitives: one vertex per tile over the output's mapping, operands brought to it first."""

from __future__ import annotations

from dataclasses import replace

from ipu_model.cost import Number, cdiv
from ipu_model.costs.complex_parts import real_operations
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.costs.vertex_table import BINARY, COMPOSED, UNARY, loop_cycles
from ipu_model.walk.program import Op, Tensor


def price(op: Op, ctx: Context) -> OpCost:
    """Cycles of ``launch + 6 (overhead + loop(elements per worker))`` on the fullest tile.

    A primitive that the library has no vertex for becomes one generated vertex, with the loops of all its parts.
    """
    name = op.primitive
    if name == "integer_pow":
        return _power(op, ctx)
    if name == "div" and op.output.floating and 1 < op.inputs[1].size * FEW <= op.output.size:
        return _divide_by_few(op, ctx)
    spread, out = ctx.spread(op.output), op.output
    binary = name in BINARY or name in ("add_any", "select_n", "clamp", "nextafter")
    per_worker = cdiv(spread.most, ctx.target.workers)
    given = next((t for t in op.inputs if t.size == out.size), out)
    names, source = real_operations(name, out if out.parts > given.parts else given)
    loops = sum(loop_cycles(n, source, per_worker, scalar=binary and _has_scalar(op)) for n in names)
    overhead = _overhead(names[0], op, source, ctx)
    vertex = f"popops::{'Binary' if binary else 'Unary'}Op1D<{name.upper()},{given.dtype}>"
    step = Superstep(
        "Op/" + name.title().replace("_", ""),
        compute=overhead + ctx.target.workers * loops,
        tiles=spread.tiles,
        vertices=spread.tiles,
        vertex=vertex,
        balance=spread.balance,
        overhead=overhead,
    )
    flops = out.size * len(names) if out.floating or source.floating else 0
    return OpCost((step,), flops=flops, outputs=(spread,), elementwise=True, layout="keep")


def _divide_by_few(op: Op, ctx: Context) -> OpCost:
    """Division by a broadcast operand, as in softmax and normalisation: invert the few divisors, then multiply."""
    few = op.inputs[1]
    product = price(Op("mul", op.inputs, op.outputs, {}), ctx)
    spread, workers = ctx.spread(few), ctx.target.workers
    names, part = real_operations("inverse", few)
    loops = sum(loop_cycles(name, part, cdiv(spread.most, workers)) for name in names)
    inverse = Superstep(
        "Op/Inverse",
        ctx.target.supervisor_cycles + 9 + workers * (28 + loops),
        tiles=spread.tiles,
        vertices=spread.tiles,
        vertex=f"popops::UnaryOp1D<INVERSE,{few.dtype}>",
        balance=spread.balance,
    )
    return replace(product, supersteps=(inverse, *product.supersteps))


def _overhead(name: str, op: Op, source: Tensor, ctx: Context) -> Number:
    """Cycles of launch and set-up of one vertex that works out of place on one contiguous region."""
    workers, launch = ctx.target.workers, ctx.target.supervisor_cycles
    if name in UNARY:
        return launch + 9 + workers * 28
    if _has_scalar(op) or name in ("select_n", "clamp"):
        return launch + workers * 20
    return launch + workers * (41 if source.dtype == "float32" else 32)


def _has_scalar(op: Op) -> bool:
    return len(op.inputs) == 2 and min(t.size for t in op.inputs) == 1 < op.output.size


def _power(op: Op, ctx: Context) -> OpCost:
    """``x ** n`` by repeated squaring: square vertices and multiplies."""
    n = abs(int(op.params["y"]))
    count = max(1, n.bit_length() - 1 + n.bit_count() - 1) + (op.params["y"] < 0)
    spread = ctx.spread(op.output)
    names, part = real_operations("square", op.output)
    loops = count * sum(loop_cycles(name, part, cdiv(spread.most, ctx.target.workers)) for name in names)
    overhead = _overhead("square", op, part, ctx)
    step = Superstep(
        "Op/Pow", overhead + ctx.target.workers * loops, tiles=spread.tiles, vertices=spread.tiles,
        vertex=f"popops::UnaryOp1D<SQUARE,{op.output.dtype}>", balance=spread.balance, overhead=overhead,
    )  # fmt: skip
    return OpCost(
        (step,), flops=count * len(names) * op.output.size, outputs=(spread,), elementwise=True, layout="keep"
    )


def cast(op: Op, ctx: Context) -> OpCost:
    """Change of type; free when the bits on the device stay the same (64-bit types are 32-bit ones there)."""
    source, target = op.inputs[0], op.output
    if source.width == target.width and _kind(source.dtype) == _kind(target.dtype):
        return OpCost(view=True, layout="keep")
    spread = ctx.spread(target)
    m = ctx.target.machine
    n = cdiv(spread.most, ctx.target.workers)
    if source.floating and target.floating:
        loops, width = (2, 4) if target.width < source.width else (1, 2)
    else:
        loops, width = 2, 1
    overhead = 19 + ctx.target.workers * (23 + 19)
    step = Superstep(
        "Cast", overhead + m.workers * loops * cdiv(n, width), tiles=spread.tiles, vertices=spread.tiles,
        vertex=f"popops::Cast1D<{source.dtype},{target.dtype}>", balance=spread.balance, overhead=overhead,
    )  # fmt: skip
    return OpCost((step,), outputs=(spread,), elementwise=True, layout="keep")


def _kind(dtype: str) -> str:
    return dtype.rstrip("0123456789")


FEW = 8  # a divisor with at most one element for eight results is inverted first
NAMES = (*UNARY, *BINARY, *COMPOSED, "add_any", "select_n", "clamp", "integer_pow", "nextafter", "mul", "eq_to",
         "le_to", "lt_to")  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(NAMES, price), **dict.fromkeys(("convert_element_type", "stochastic_round"), cast),
}  # fmt: skip
