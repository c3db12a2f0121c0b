"""Gradient ops of elementwise functions, spelled out in elementary ops. Formulas: PopART's operator list.

A gradient op reads the incoming gradient first, then the forward tensors it needs; its output has the shape of the
operand. One row per op: gradient op type, pattern, formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from .._context import Context, static_shape
from .._core import Outcome, Refused, Rewrite, rewrites
from ..facts import elementwise, known, real_inputs, reshape, same_type, scalar, sum_to
from ..operators import GRAPHCORE


class Algebra:
    """Elementwise ops by name, with output types filled in."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        domain = GRAPHCORE if op_type in ("Square", "Scale") else ""
        return lambda *operands, **attributes: elementwise(
            self.context, op_type, *operands, domain=domain, **attributes
        )

    def cast_like(self, value: ir.Value, other: ir.Value) -> ir.Value:
        """`value` in the type of `other`: exponents may be whole numbers where bases are not."""
        if value.dtype == other.dtype or other.dtype is None:
            return value
        return self.context.op("Cast", value, like=value, dtype=other.dtype, to=int(other.dtype))

    def plus(self, value: ir.Value, number: float) -> ir.Value:
        """The value plus a constant of its type."""
        return self.Add(value, scalar(self.context, number, value))


Value = ir.Value
Formula = (
    Callable[[Algebra, Value], Value]
    | Callable[[Algebra, Value, Value], Value]
    | Callable[[Algebra, Value, Value, Value], Value]
    | Callable[[Algebra, Value, Value, Value, Value], Value]
)
"""An expression in the operands of a node, by their number."""

UNARY: dict[str, tuple[str, Formula]] = {
    "SinGrad": ("SinGradOp", lambda o, g, x: o.Mul(g, o.Cos(x))),
    "CosGrad": ("CosGradOp", lambda o, g, x: o.Neg(o.Mul(g, o.Sin(x)))),
    "SqrtGrad": ("SqrtGradOp", lambda o, g, y: o.Div(g, o.Scale(y, scale=2.0))),
    "ExpGrad": ("ExpGradOp", lambda o, g, y: o.Mul(g, y)),
    "Expm1Grad": ("Expm1GradOp", lambda o, g, y: o.Mul(g, o.plus(y, 1.0))),
    "LogGrad": ("LogGradOp", lambda o, g, x: o.Div(g, x)),
    "Log1pGrad": ("Log1pGradOp", lambda o, g, x: o.Div(g, o.plus(x, 1.0))),
    "ReciprocalGrad": ("ReciprocalGradOp", lambda o, g, x: o.Mul(g, o.Neg(o.Reciprocal(o.Square(x))))),
    "AbsGrad": ("AbsGradOp", lambda o, g, x: o.Mul(g, o.Sign(x))),
    "Cosh": ("CoshOp", lambda o, x: o.Scale(o.Add(o.Exp(x), o.Exp(o.Neg(x))), scale=0.5)),
}

# (pattern, operand whose gradient it is: position among the inputs, formula before the sum over broadcast axes)
BINARY: dict[str, tuple[str, int, Formula]] = {
    "SubArg1Grad": ("SubtractArg1GradOp", 2, lambda o, g, a, b, y: o.Neg(g)),
    "MulArg0Grad": ("MulArgGradOp", 1, lambda o, g, a, b, y: o.Mul(g, b)),
    "MulArg1Grad": ("MulArgGradOp", 2, lambda o, g, a, b, y: o.Mul(g, a)),
    "DivArg0Grad": ("DivArg0GradOp", 1, lambda o, g, a, b, y: o.Div(g, b)),
    "DivArg1Grad": ("DivArg1GradOp", 2, lambda o, g, a, b, y: o.Neg(o.Div(o.Mul(g, a), o.Square(b)))),
    "FmodArg0Grad": ("FmodArg0GradOp", 1, lambda o, g, a, b, y: g),
    "PowArg0Grad": ("PowArg0GradOp", 1, lambda o, g, a, b, y: _base_gradient(o, g, a, b)),
    "PowArg1Grad": ("PowArg1GradOp", 2, lambda o, g, a, b, y: o.Mul(g, o.Mul(y, o.Log(a)))),
    "Atan2Arg0Grad": ("Atan2Arg0GradOp", 1, lambda o, g, y, x, _: o.Mul(g, o.Div(x, _square_norm(o, x, y)))),
    "Atan2Arg1Grad": ("Atan2Arg1GradOp", 2, lambda o, g, y, x, _: o.Neg(o.Mul(g, o.Div(y, _square_norm(o, x, y))))),
}


def _base_gradient(o: Algebra, g: ir.Value, base: ir.Value, exponent: ir.Value) -> ir.Value:
    return o.Mul(g, o.Mul(o.cast_like(exponent, base), o.Pow(base, o.plus(exponent, -1.0))))


def _square_norm(o: Algebra, x: ir.Value, y: ir.Value) -> ir.Value:
    return o.Add(o.Square(x), o.Square(y))


def _decompose_unary(node: ir.Node, context: Context) -> Outcome:
    """The formula of the table; NumPy broadcasting is not involved, so shapes need not be known."""
    _, formula = UNARY[node.op_type]
    result = formula(Algebra(context), *real_inputs(node))
    return _with_type(result, node.outputs[0])


def _decompose_binary(node: ir.Node, context: Context) -> Outcome:
    """The formula of the table, summed over the axes along which the operand was broadcast."""
    if not known(node):
        return Refused("shapes are not static")
    _, position, formula = BINARY[node.op_type]
    inputs = real_inputs(node)
    result = sum_to(context, formula(Algebra(context), *inputs), inputs[position])
    if result is inputs[0]:
        result = context.op("Identity", result, like=result)
    return _with_type(result, node.outputs[0])


def _with_type(result: ir.Value, wanted: ir.Value) -> ir.Value:
    result.type = wanted.type if result.type is None else result.type
    result.shape = wanted.shape if result.shape is None else result.shape
    return result


def _register(table: dict[str, str], function: Rewrite) -> None:
    for pattern in dict.fromkeys(table.values()):
        rewrites(pattern, *(op for op, name in table.items() if name == pattern))(function)


_register({op: row[0] for op, row in UNARY.items()}, _decompose_unary)
_register({op: row[0] for op, row in BINARY.items()}, _decompose_binary)


@rewrites("SplitGradOpToConcat", "SplitGrad")
def split_grad_to_concat(node: ir.Node, context: Context) -> Outcome:
    """The gradient of Split is the concatenation of the gradients of its outputs."""
    return context.op("Concat", *node.inputs, like=node.outputs[0], axis=node.attributes["axis"])


@rewrites("ConvFlipWeightsGradOp", "ConvFlipWeightsGrad")
def flip_gradient(node: ir.Node, context: Context) -> Outcome:
    """Flipping is its own transpose."""
    return context.graphcore("ConvFlipWeights", *node.inputs, like=node.outputs[0], attrs=dict(node.attributes))


@rewrites("ConvFlipWeightsDoubleFlip", "ConvFlipWeights")
def cancel_flips(node: ir.Node, context: Context) -> Outcome:
    """Two weight flips in a row are the identity."""
    inner = None if node.inputs[0] is None else node.inputs[0].producer()
    if inner is None or inner.op_type != "ConvFlipWeights":
        return None
    if node.attributes.get("group") != inner.attributes.get("group"):
        return Refused("the flips have different groups")
    return context.op("Identity", inner.inputs[0], like=node.outputs[0])


@rewrites(
    "OpToIdentity", "AddBiasDataGrad", "SubArg0Grad", "ReshapeGrad", "SqueezeGrad", "UnsqueezeGrad", "FlattenGrad"
)
def plain_gradient(node: ir.Node, context: Context) -> Outcome:
    """Gradients that only restore a shape: nothing to do when it is the shape already."""
    gradient = node.inputs[0]
    assert gradient is not None
    return context.op("Identity", gradient, like=gradient) if same_type(gradient, node.outputs[0]) else None


_PLACES = ("__ipu_number", "__pipeline_stage", "__execution_phase")


def _place(node: ir.Node) -> list[Any]:
    return [node.attributes[name].value if name in node.attributes else None for name in _PLACES]


@rewrites("ViewSimplifyPattern", "Reshape", "Flatten", "Identity")
def collapse_views(node: ir.Node, context: Context) -> Outcome:
    """Two views in a row become one: an Identity of two, else a Reshape (as Flatten is)."""
    middle = node.inputs[0]
    first = None if middle is None else middle.producer()
    if middle is None or first is None or first.op_type not in ("Reshape", "Flatten", "Identity"):
        return None
    source, shape = first.inputs[0], static_shape(node.outputs[0])
    if source is None or shape is None or not context.only_used_once(middle):
        return Refused("the tensor in between is needed, or a shape is unknown")
    if _place(node) != _place(first):
        return Refused("the tensor in between goes from one place to another")
    if node.op_type == first.op_type == "Identity":
        return context.op("Identity", source, like=source)
    return reshape(context, source, shape)
