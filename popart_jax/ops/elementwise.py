"""Element-wise mathematics of one and two operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._compat.jax import Tracer
from ..errors import OpError, popart_exception
from . import primitives
from .arrays import Array, device_dtype, dtype_name, is_float, is_text, listed, namespace
from .kernels import Computation
from .operator import (
    ELEMENTWISE,
    FOLDS,
    MOVES_DATA,
    MOVES_ROWS,
    NAMESAKE,
    NON_LINEARITY,
    ROUNDS,
    VIEW_CHANGE,
    ZERO_GRADIENT,
    as_onnx,
    gradient,
    of_both,
    operator,
)
from .registry import direct, lowers
from .symbols import broadcast_shapes
from .two_way import two_way, with_jvp


@with_jvp()
def absolute(x: Array) -> Array:
    """Magnitude, with gradient 0 at 0."""
    return jnp.abs(x)


@absolute.defjvp
def _absolute_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return jnp.abs(*primals), tangents[0] * jnp.sign(*primals)


def quiet(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` of arrays of one shape, with gradient 0 wherever the incoming gradient is 0.

    A masked branch then passes back 0, not NaN, where its slope is infinite or undefined (sqrt and log at 0).
    """

    @two_way
    def run(*xs: Array) -> Array:
        return fn(*xs)

    def calm(xs: tuple[Array, ...], still: Array) -> tuple[Array, ...]:
        """The operands, replaced by 1 (where every slope is finite) if no gradient or tangent arrives."""
        return tuple(jnp.where(still, jnp.ones_like(x), x) for x in xs)

    def backward(xs: tuple[Array, ...], g: Array) -> tuple[Array, ...]:
        return cast("tuple[Array, ...]", jax.vjp(fn, *calm(xs, g == 0))[1](g))

    def push(xs: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
        still = reduce(jnp.logical_and, (t == 0 for t in tangents))
        return jax.jvp(fn, calm(xs, still), tangents)[1]

    run.defvjp(lambda *xs: (run(*xs), xs), backward, push)
    return run


quiet_power = quiet(jnp.power)

operator("Abs", ELEMENTWISE, gradients=gradient("g x0", removed_by=NAMESAKE), popxl=as_onnx(6, runs=13))
operator("Ceil", ELEMENTWISE, gradients=ZERO_GRADIENT, inplace=True, popxl=as_onnx(runs=13))
operator(
    "Exp",
    ELEMENTWISE | ROUNDS,
    gradients=gradient("g y0", kernel=True, removed_by=NAMESAKE),
    inplace=True,
    popxl=as_onnx(6, runs=13),
)
operator("Floor", ELEMENTWISE | FOLDS, gradients=ZERO_GRADIENT, inplace=True, popxl=as_onnx(6, runs=13))
operator(
    "Log",
    ELEMENTWISE | ROUNDS,
    gradients=gradient("g x0", removed_by=NAMESAKE, required=True),
    popxl=as_onnx(6, runs=13),
)
operator("Reciprocal", ELEMENTWISE | ROUNDS, gradients=gradient("g x0", removed_by=NAMESAKE))
operator("Sigmoid", ELEMENTWISE | NON_LINEARITY | ROUNDS, gradients="g y0", inplace=True)
operator(
    "Sqrt",
    ELEMENTWISE | ROUNDS,
    gradients=gradient("g y0", kernel=True, removed_by=NAMESAKE),
    popxl=as_onnx(6, runs=13),
)
operator(
    "Tanh",
    ELEMENTWISE | NON_LINEARITY | ROUNDS,
    gradients=gradient("g y0", kernel=True),
    inplace=True,
    popxl=as_onnx(6, runs=13),
)
direct({"Abs": absolute, "Ceil": primitives.ceil, "Exp": primitives.exp, "Floor": primitives.floor,
        "Log": quiet(primitives.log), "Reciprocal": jnp.reciprocal, "Sigmoid": primitives.sigmoid,
        "Sqrt": quiet(primitives.sqrt), "Tanh": primitives.tanh}, 1)  # fmt: skip


@Computation
def accurate_tanh(x: Array) -> jax.Array:
    """Tanh whose slope, 1 - y^2, stays accurate where it saturates (supplement 5.12)."""
    return jnp.asarray(primitives.tanh(x))


@lowers("Tanh", 1, popart=True)
def popart_tanh(x: Array, /) -> Array:
    return accurate_tanh(x)


operator("Acos", ELEMENTWISE | ROUNDS, gradients="g x0")
operator("Asin", ELEMENTWISE | ROUNDS, gradients="g x0", inplace=True)
operator("Atan", ELEMENTWISE | ROUNDS, gradients="g x0", inplace=True)
operator("Cos", ELEMENTWISE | ROUNDS, gradients=gradient("g x0", removed_by=NAMESAKE), popxl=as_onnx(7, runs=7))
operator(
    "Sin",
    ELEMENTWISE | ROUNDS,
    gradients=gradient("g x0", removed_by=NAMESAKE, required=True),
    popxl=as_onnx(7, runs=7),
)
operator("Tan", ELEMENTWISE | ROUNDS)
direct({"Acos": jnp.arccos, "Asin": jnp.arcsin, "Atan": jnp.arctan, "Cos": jnp.cos, "Sin": jnp.sin, "Tan": jnp.tan}, 7)
operator("Acosh", ELEMENTWISE | ROUNDS)
operator("Asinh", ELEMENTWISE | ROUNDS)
operator("Atanh", ELEMENTWISE | ROUNDS)
operator("Cosh", ELEMENTWISE | ROUNDS, removed_by="CoshOp")
operator("Erf", ELEMENTWISE | ROUNDS, gradients="g x0")
operator("IsNaN", ELEMENTWISE, gradients=(), popxl=as_onnx(9, runs=13, name="IsNaN"))
operator("Sign", ELEMENTWISE, gradients=ZERO_GRADIENT, inplace=True, popxl=as_onnx(9))
operator("Sinh", ELEMENTWISE | ROUNDS, gradients="g x0", inplace=True)
direct({"Acosh": jnp.arccosh, "Asinh": jnp.arcsinh, "Atanh": jnp.arctanh, "Cosh": jnp.cosh, "Sinh": jnp.sinh,
        "Sign": jnp.sign, "IsNaN": jnp.isnan}, 9)  # fmt: skip


def in_float(fn: Callable[[Any], Any], x: Array) -> Array:
    """`fn` of an array; of integers it is computed in floating point and truncated."""
    return fn(x) if is_float(x) else fn(x.astype(jnp.result_type(float))).astype(x.dtype)


@lowers("Erf", 9)
def erf(x: Array, /) -> Array:
    return in_float(lax.erf, jnp.asarray(x))


operator("Neg", ELEMENTWISE, gradients="g", popxl=as_onnx(6, runs=13, name="NegateOp"))


@lowers("Neg", 1)
def neg(x: Array, /) -> Array:
    return lax.neg(x) if isinstance(x, Tracer) else namespace(x).negative(x)


operator(
    "Identity",
    ELEMENTWISE | VIEW_CHANGE | MOVES_DATA | FOLDS | MOVES_ROWS,
    gradients=gradient(traits=VIEW_CHANGE),
    view=True,
    popxl=as_onnx(runs=16),
)


@lowers("Identity", 1)
def identity(x: Any, /) -> Any:
    return x


operator("Round", ELEMENTWISE, gradients=ZERO_GRADIENT, inplace=True)


@lowers("Round", 11)
def round_(x: Array, /) -> Array:
    """Ties go to even."""
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@lowers("Round", 11, popart=True)
def popart_round(x: Array, /) -> Array:
    """Ties go away from zero."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


operator("IsInf", ELEMENTWISE, gradients=(), popxl=as_onnx(10, runs=10, name="IsInf"))


@lowers("IsInf", 10)
def is_inf(x: Array, /, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    below, above = jnp.isneginf(x), jnp.isposinf(x)
    if detect_negative and detect_positive:
        return below | above
    return below if detect_negative else above & bool(detect_positive)


@lowers("IsInf", 10, popart=True)
def popart_is_inf(x: Array, /) -> Array:
    """Ignores both attributes."""
    return is_inf(x)


def check_operands(op: str, *xs: Any) -> None:
    """Raise popart_exception unless operands of a broadcasting operator have one type and aligned shapes.

    Nothing is promoted. Operands are joined from the left, as PopART does: the texts, which are PopART's, name the
    operand that does not fit, and what those before it have.
    """
    if any(is_text(x) for x in xs):
        return
    first, *others = xs
    joined = np.shape(first)
    for x in others:
        if device_dtype(x.dtype) != device_dtype(first.dtype):
            types = f"{dtype_name(first)} and {dtype_name(x)}"
            word = "" if op == "Mul" else "Op "
            text = f"incompatible types {types} (shapes {listed(joined)} and {listed(np.shape(x))})"
            raise OpError(f"np broadcasting failed on {word}{{op}}, {text}", op)
        joined = check_frames(op, joined, np.shape(x))


def check_frames(op: str, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that two shapes broadcast to; OpError, in PopART's words, if they do not."""
    try:
        return broadcast_shapes(one, other)
    except ValueError:
        frames = f"{list(one)} and {list(other)}"
        raise OpError(f"np broadcasting failed on 'Op {{op}}', frames {frames} are not aligned", op) from None


def legacy_align(x: Array, y: Array, broadcast: int, axis: int | None) -> Array:
    """Opset 1 to 6: the second operand keeps its shape, or is aligned with the first at `axis` (default: the end)."""
    if np.shape(x) == np.shape(y):
        return y
    if not broadcast:
        raise popart_exception(f"shapes {list(np.shape(x))} and {list(np.shape(y))} differ and broadcast is 0")
    if axis is None:
        return y
    start = axis if axis >= 0 else x.ndim + axis
    return y.reshape(y.shape + (1,) * (x.ndim - start - y.ndim))


def broadcasting(op: str, fn: Callable[[Any, Any], Any], numpy_rules_from: int = 7) -> None:
    """Register a two-operand operator under both broadcasting rules."""
    modern = aligned(op, fn)

    def legacy(x: Array, y: Array, /, *, axis: int | None = None, broadcast: int = 0) -> Array:
        return modern(x, legacy_align(x, y, broadcast, axis))

    lowers(op, numpy_rules_from)(modern)
    lowers(op, 1)(legacy)


def _refuse_zero(what: str, divisor: Array) -> None:
    """Raise on integer division by a zero that is known while tracing; otherwise the result is XLA's."""
    if not isinstance(divisor, Tracer) and divisor.dtype.kind in "iu" and not np.all(divisor):
        raise popart_exception(f"integer {what} by zero")


def aligned(op: str, fn: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """`fn` with its operands checked by `check_operands`."""

    def checked(x: Array, y: Array, /) -> Array:
        check_operands(op, x, y)
        return fn(x, y)

    return checked


def divide(x: Array, y: Array) -> Array:
    """True division of floats; integers truncate toward zero."""
    xp = namespace(x, y)
    if is_float(x):
        return primitives.divide(x, y)
    _refuse_zero("division", y)
    if xp is np:
        quotient = np.floor_divide(x, y)
        return quotient + ((x % y != 0) & ((x < 0) != (y < 0))).astype(quotient.dtype)
    return lax.div(*jnp.broadcast_arrays(x, y))


operator(
    "Add",
    ELEMENTWISE | FOLDS | ROUNDS,
    gradients=[gradient(name="AddArg0Grad"), gradient(of=1, name="AddArg1Grad")],
    inplace={0: "AddLhsInplace", 1: "AddRhsInplace"},
    popxl=as_onnx(6, runs=14),
)

broadcasting("Add", primitives.add)
operator(
    "Sub",
    ELEMENTWISE | FOLDS | ROUNDS,
    gradients=[
        gradient(name="SubArg0Grad"),
        gradient("g x0 x1 y0", of=1, name="SubArg1Grad", removed_by="SubtractArg1GradOp"),
    ],
    popxl=as_onnx(7, runs=14, name="SubtractOp"),
)

broadcasting("Sub", primitives.subtract)
operator(
    "Mul",
    ELEMENTWISE | FOLDS | ROUNDS,
    gradients=of_both("Mul", removed_by="MulArgGradOp", required=True),
    inplace={0: "MulLhsInplace", 1: "MulRhsInplace"},
    popxl=as_onnx(7, runs=14),
)

broadcasting("Mul", primitives.multiply)


@lowers("Mul", 7, popart=True)
def popart_mul(x: Array, y: Array, /) -> Array:
    """One element of FLOAT may scale a tensor of FLOAT16, which keeps its type; no other operator mixes types."""
    x, y = _as_half(x, y), _as_half(y, x)
    check_operands("Mul", x, y)
    return primitives.multiply(x, y)


def _as_half(factor: Array, other: Array) -> Array:
    single = factor.dtype == np.float32 and np.size(factor) == 1
    return factor.astype(np.float16) if single and other.dtype == np.float16 else factor


operator("Div", ELEMENTWISE | FOLDS | ROUNDS, gradients=of_both("Div", required=True), popxl=as_onnx(7, runs=14))

broadcasting("Div", divide)


@two_way
def _popart_power(x: Array, y: Array) -> Array:
    return jnp.power(x, y)


def _power_slopes(x: Array, y: Array) -> tuple[Array, Array]:
    """Slopes: that of the base is 0 where y is 0, that of the exponent where x is 0 and y is not negative."""
    no_x, no_y = y == 0, (x == 0) & (y >= 0)
    one = jnp.ones_like(x)
    to_x = y * jnp.power(jnp.where(no_x, one, x), y - 1)
    to_y = jnp.power(x, y) * jnp.log(jnp.where(no_y, one, x))
    return jnp.where(no_x, jnp.zeros_like(x), to_x), jnp.where(no_y, jnp.zeros_like(x), to_y)


def _power_back(saved: tuple[Array, Array], g: Array) -> tuple[Array, ...]:
    still = g == 0
    return tuple(jnp.where(still, jnp.zeros_like(g), g * slope) for slope in _power_slopes(*saved))


def _power_push(saved: tuple[Array, Array], tangents: tuple[Array, Array]) -> Array:
    pairs = zip(tangents, _power_slopes(*saved), strict=True)
    return sum(jnp.where(t == 0, jnp.zeros_like(t), t * slope) for t, slope in pairs)  # pyright: ignore[reportReturnType]


def _power_forward(x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
    return _popart_power(x, y), (x, y)


_popart_power.defvjp(_power_forward, _power_back, _power_push)


def power(x: Array, y: Array) -> Array:
    """Result in the type of the base; small constant integer exponents become multiplications."""
    if isinstance(y, np.ndarray) and y.size == 1 and y.ndim <= np.ndim(x) and is_float(x):
        exponent = float(y.reshape(()))
        if exponent.is_integer() and abs(exponent) <= 16:
            return lax.integer_pow(jnp.asarray(x), int(exponent))
    if not is_float(x) and is_float(y):
        return jnp.power(x.astype(y.dtype), y).astype(x.dtype)
    y = y.astype(x.dtype)
    if is_float(x):
        return quiet_power(*jnp.broadcast_arrays(x, y))
    fraction = (y < 0) & (jnp.abs(x) != 1)  # an integer to a negative power truncates to 0
    return jnp.where(fraction, jnp.zeros((), x.dtype), jnp.power(x, jnp.abs(y)))


operator(
    "Pow",
    ELEMENTWISE | ROUNDS,
    gradients=of_both("Pow", required=True),
    inplace="PowLhsInplace",
    popxl=as_onnx(7, runs=15),
)


@lowers("Pow", 7)
def pow_(x: Array, y: Array, /) -> Array:
    """Types may differ from opset 12 on."""
    return power(x, y)


@lowers("Pow", 7, popart=True)
def popart_pow(x: Array, y: Array, /) -> Array:
    """Types never differ; slopes are 0 at bases and exponents of 0."""
    check_operands("Pow", x, y)
    known = isinstance(y, np.ndarray)
    return power(x, y) if known or not is_float(x) else _popart_power(*jnp.broadcast_arrays(x, y))


@lowers("Pow", 1)
def pow_1(x: Array, y: Array, /, *, axis: int | None = None, broadcast: int = 0) -> Array:
    return power(x, legacy_align(x, y, broadcast, axis))


def popart_fmod(a: Array, b: Array) -> jax.Array:
    """C's fmod; the gradient goes to the first operand only."""
    return lax.rem(*_broadcast(a, lax.stop_gradient(b)))


def popart_remainder(a: Array, b: Array) -> jax.Array:
    """fmod(fmod(a, b) + b, b): the sign of the divisor; both operands of the sum get the gradient."""
    a, b = _broadcast(a, b)
    return popart_fmod(popart_fmod(a, b) + b, b)


def _broadcast(a: Array, b: Array) -> tuple[jax.Array, jax.Array]:
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    return jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)


operator("Mod", ELEMENTWISE | FOLDS)


@lowers("Mod", 10)
def mod(x: Array, y: Array, /, *, fmod: int = 0) -> Array:
    """Sign of the divisor, or with `fmod` that of the dividend."""
    check_operands("Mod", x, y)
    xp = namespace(x, y)
    if not is_float(x):
        _refuse_zero("remainder", y)
    return xp.fmod(x, y) if fmod else xp.mod(x, y)


@lowers("Mod", 10, popart=True)
def popart_mod(x: Array, y: Array, /, *, fmod: int = 0) -> Array:
    """As Fmod and Remainder for floats that are not known while tracing."""
    check_operands("Mod", x, y)
    if not is_float(x) or namespace(x, y) is np:
        return mod(x, y, fmod=fmod)
    return popart_fmod(x, y) if fmod else popart_remainder(x, y)
