"""Comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .arrays import Array, is_text, namespace
from .elementwise import aligned, broadcasting, check_operands
from .operator import ELEMENTWISE, REFUSES_GRADIENT, as_onnx, operator
from .registry import direct, lowers


def _named(name: str) -> Callable[[Any, Any], Any]:
    """A function of JAX's NumPy, or of NumPy for operands that are known."""
    return lambda x, y: getattr(namespace(x, y), name)(x, y)


operator("Not", ELEMENTWISE | REFUSES_GRADIENT, gradients=(), popxl=as_onnx(runs=1))
direct({"Not": jnp.logical_not}, 1)
operator("BitwiseNot", ELEMENTWISE | REFUSES_GRADIENT, gradients=())
direct({"BitwiseNot": jnp.bitwise_not}, 18)

operator("And", ELEMENTWISE | REFUSES_GRADIENT, gradients=(), popxl=as_onnx(7, runs=7))
operator("Or", ELEMENTWISE | REFUSES_GRADIENT, gradients=(), popxl=as_onnx(7, runs=7))
operator("Xor", ELEMENTWISE, gradients=())

for _op, _name in {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}.items():
    broadcasting(_op, _named(_name))
operator("Greater", ELEMENTWISE | REFUSES_GRADIENT, gradients=(), popxl=as_onnx(9, runs=13))
operator("Less", ELEMENTWISE | REFUSES_GRADIENT, gradients=())

for _op, _name in {"Greater": "greater", "Less": "less"}.items():
    broadcasting(_op, _named(_name))


def equal(x: Any, y: Any) -> Array:
    """Equality, also of texts."""
    if is_text(x) or is_text(y):
        return np.asarray(np.asarray(x, object) == np.asarray(y, object), bool)
    return namespace(x, y).equal(x, y)


operator("Equal", ELEMENTWISE | REFUSES_GRADIENT, gradients=(), popxl=as_onnx(7, runs=13))

broadcasting("Equal", equal)


for _op, _name in {"GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal"}.items():
    operator(_op, ELEMENTWISE, gradients=())
    lowers(_op, 12)(aligned(_op, _named(_name)))

for _op, _fn in {"BitwiseAnd": jnp.bitwise_and, "BitwiseOr": jnp.bitwise_or, "BitwiseXor": jnp.bitwise_xor}.items():
    operator(_op, ELEMENTWISE | REFUSES_GRADIENT, gradients=())
    lowers(_op, 18)(aligned(_op, _fn))

operator("BitShift", ELEMENTWISE, gradients=())


@lowers("BitShift", 11)
def bit_shift(x: Array, y: Array, /, *, direction: str) -> Array:
    """Shifts by a negative amount or by the whole width leave only the sign extension (0 or -1)."""
    check_operands("BitShift", x, y)
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction must be LEFT or RIGHT, got {direction!r}")
    x, y = jnp.broadcast_arrays(x, y)
    bits = np.asarray(8 * x.dtype.itemsize, x.dtype)
    inside = (y >= 0) & (y < bits)
    shift = jnp.where(inside, y, jnp.zeros_like(y))
    if direction == "LEFT":
        return jnp.where(inside, lax.shift_left(x, shift), jnp.zeros_like(x))
    if jnp.issubdtype(x.dtype, jnp.signedinteger):
        return jnp.where(
            inside, lax.shift_right_arithmetic(x, shift), jnp.where(x < 0, -jnp.ones_like(x), jnp.zeros_like(x))
        )
    return jnp.where(inside, lax.shift_right_logical(x, shift), jnp.zeros_like(x))
