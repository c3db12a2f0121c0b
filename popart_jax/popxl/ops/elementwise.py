"""Element-wise mathematics."""

from __future__ import annotations

from ...errors import popart_exception
from .. import dtypes
from .._building.create import Out, create, like, result
from ..tensor import Tensor, TensorLike, as_tensor
from . import _shapes
from ._base import binary, unary
from .shaping import identity
from .utils import cast_if_needed, check_operands

__all__ = [
    "abs", "add", "add_", "ceil", "clamp", "clip", "cos", "div", "equal", "exp", "exp_", "fmod", "gelu", "gelu_",
    "geluerf", "geluerf_", "greater", "increment_mod", "increment_mod_", "isfinite", "isinf", "isnan", "log",
    "logical_and", "logical_not", "logical_or", "maximum", "mul", "negate", "pow", "relu", "relu_", "sign", "sin",
    "sqrt", "sub", "swish", "swish_", "tanh", "where",
]  # fmt: skip

_inf = dtypes.builtins.float("inf")


def abs(t: Tensor) -> Tensor:
    """Absolute value."""
    return unary("Abs", t, "abs_out")


def ceil(t: Tensor) -> Tensor:
    """Round up."""
    return unary("Ceil", t, "ceil_out")


def floor(t: Tensor) -> Tensor:
    """Round down."""
    return unary("Floor", t, "floor_out")


def sign(t: Tensor) -> Tensor:
    """-1, 0 or 1; 0 for NaN."""
    return unary("Sign", t, "sign_out")


def negate(t: Tensor) -> Tensor:
    """-t."""
    return unary("Neg", t, "negate_out")


def cos(t: Tensor) -> Tensor:
    """Cosine."""
    return unary("Cos", t, "cos_out")


def sin(t: Tensor) -> Tensor:
    """Sine."""
    return unary("Sin", t, "sin_out")


def tanh(t: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return unary("Tanh", t, "tanh_out")


def sqrt(t: Tensor) -> Tensor:
    """Square root; NaN for negative values."""
    return unary("Sqrt", t, "sqrt_out")


def log(t: Tensor) -> Tensor:
    """Natural logarithm."""
    return unary("Log", t, "log_out")


def log2(t: Tensor) -> Tensor:
    """Logarithm to base 2, as log(t) / log(2)."""
    return div(log(t), log(as_tensor(2, t.dtype)))


def exp(t: Tensor) -> Tensor:
    """Exponential."""
    return unary("Exp", t, "exp_out")


def exp_(t: Tensor) -> Tensor:
    """Exponential, in place."""
    return unary("ExpInplace", t, "exp_inplace_out")


def gelu(t: Tensor) -> Tensor:
    """0.5 t (1 + tanh(sqrt(2/pi) (t + 0.044715 t^3)))."""
    return unary("Gelu", t, "gelu_out")


def gelu_(t: Tensor) -> Tensor:
    """`gelu` in place."""
    return unary("GeluInplace", t, "gelu_inplace_out")


def geluerf(t: Tensor) -> Tensor:
    """0.5 t (1 + erf(t / sqrt(2)))."""
    return unary("GeluErf", t, "geluerf_out")


def geluerf_(t: Tensor) -> Tensor:
    """`geluerf` in place."""
    return unary("GeluErfInplace", t, "geluerf_inplace_out")


def relu(t: Tensor) -> Tensor:
    """max(t, 0)."""
    return unary("Relu", t, "relu_out")


def relu_(t: Tensor) -> Tensor:
    """`relu` in place."""
    return unary("ReluInplace", t, "relu_inplace_out")


def swish(t: Tensor) -> Tensor:
    """t sigmoid(t)."""
    return unary("Swish", t, "swish_out")


def swish_(t: Tensor) -> Tensor:
    """`swish` in place."""
    return unary("SwishInplace", t, "swish_inplace_out")


def clip(t: Tensor, min: float = -_inf, max: float = _inf) -> Tensor:
    """t limited to [min, max]; NaN stays. The gradient passes strictly inside."""
    return unary("Clip", t, "clip_out", min=dtypes.builtins.float(min), max=dtypes.builtins.float(max))


clamp = clip


def isnan(t: Tensor) -> Tensor:
    """True where NaN."""
    return unary("IsNaN", t, "isnan_out", dtypes.bool)


def isinf(t: Tensor) -> Tensor:
    """True where infinite."""
    return unary("IsInf", t, "isinf_out", dtypes.bool)


def isfinite(t: Tensor) -> Tensor:
    """True where neither NaN nor infinite."""
    return identity(logical_not(logical_or(isnan(t), isinf(t))), "isfinite_out")


def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """(t + increment) mod modulus."""
    return unary("IncrementMod", t, "increment_mod_out", None, increment=_number(increment), modulus=_number(modulus))


def increment_mod_(t: Tensor, increment: float, modulus: float) -> Tensor:
    """`increment_mod` in place."""
    attributes = {"increment": _number(increment), "modulus": _number(modulus)}
    return unary("IncrementModInplace", t, "increment_mod_inplace_out", None, **attributes)


def _number(x: float) -> float:
    return dtypes.builtins.float(x)


def add(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs + rhs."""
    return binary("Add", lhs, rhs, "add_out")


def add_(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs <- lhs + rhs; rhs is broadcast to lhs.

    Raises
    ------
    popart_exception
        The types differ, or the result would be larger than lhs.
    """
    check_operands(lhs=lhs, rhs=rhs)
    shape = _shapes.broadcast("AddLhsInplace", lhs, rhs)
    if shape != lhs.shape:
        raise popart_exception(f"AddLhsInplace: {list(rhs.shape)} can't be broadcast to {list(lhs.shape)}")
    return result(create("AddLhsInplace", [lhs, rhs], [like(lhs, "add_lhs_inplace_out")]))


def sub(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs - rhs."""
    return binary("Sub", lhs, rhs, "sub_out")


def mul(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs * rhs."""
    return binary("Mul", lhs, rhs, "mul_out")


def div(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs / rhs; whole numbers are divided with truncation."""
    return binary("Div", lhs, rhs, "div_out")


def fmod(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Remainder with the sign of lhs, as in C."""
    return binary("Fmod", lhs, rhs, "fmod_out")


def pow(t: Tensor, e: TensorLike) -> Tensor:
    """t ** e; a Python exponent becomes a constant of its own type."""
    exponent = as_tensor(e)
    check_operands(t=t, e=exponent)
    shape = _shapes.aligned("Pow", t.shape, exponent.shape)
    return result(create("Pow", [t, exponent], [Out("pow_out", shape, t.dtype)]))


def maximum(*ts: Tensor) -> Tensor:
    """Largest operand, element by element.

    Raises
    ------
    ValueError
        No operand.
    """
    if not ts:
        raise ValueError("maximum needs at least one tensor.")
    check_operands(**{f"ts_{i}": t for i, t in enumerate(ts)})
    return result(create("Max", ts, [Out("maximum_out", _shapes.broadcast("Max", *ts), ts[0].dtype)]))


def equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs == rhs, element by element."""
    return binary("Equal", lhs, rhs, "equal_out", dtypes.bool)


def greater(input: Tensor, other: Tensor) -> Tensor:
    """input > other, element by element."""
    return binary("Greater", input, other, "greater_out", dtypes.bool, ("input", "other"))


def logical_and(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs and rhs; operands are cast to bool."""
    check_operands(lhs=lhs, rhs=rhs)
    return binary("And", cast_if_needed(lhs, dtypes.bool), cast_if_needed(rhs, dtypes.bool), "and_out")


def logical_or(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs or rhs; operands are cast to bool."""
    check_operands(lhs=lhs, rhs=rhs)
    return binary("Or", cast_if_needed(lhs, dtypes.bool), cast_if_needed(rhs, dtypes.bool), "or_out")


def logical_not(t: Tensor) -> Tensor:
    """not t; the operand is cast to bool."""
    check_operands(t=t)
    return unary("Not", cast_if_needed(t, dtypes.bool), "not_out")


def where(condition: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs where the condition holds, else rhs; all are broadcast."""
    check_operands(condition=condition, lhs=lhs, rhs=rhs)
    condition = cast_if_needed(condition, dtypes.bool)
    shape = _shapes.aligned("Where", condition.shape, _shapes.broadcast("Where", lhs, rhs))
    return result(create("Where", [condition, lhs, rhs], [Out("where_out", shape, lhs.dtype)]))
