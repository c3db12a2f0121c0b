"""Softmax, LogSoftmax and Hardmax: along one axis, before opset 13 over everything from an axis on."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .arrays import AXIS, Array, first_extreme, normal_axis, wide
from .folding import largest, total
from .operator import ROUNDS, ROW_BY_ROW, as_onnx, gradient, operator
from .options import DEFAULTS
from .primitives import divide, exp, log, subtract
from .registry import Options, lowers
from .two_way import two_way


@partial(two_way, nondiff_argnums=(1,))
def softmax(x: Any, axis: int) -> Any:
    """Softmax; a row that is -inf throughout (all masked) is NaN, but sends no NaN back.

    Half precision is computed in float32: in its own type, as GPUs and CPUs with AVX512-FP16 have it, the powers
    would be rounded, and the result three times as far off.
    """
    data = wide(x)
    powers = exp(subtract(data, largest(data, (axis,))))
    return divide(powers, total(powers, (axis,))).astype(x.dtype)


def _forward(x: Any, axis: int) -> tuple[Any, Any]:
    y = softmax(x, axis)
    return y, y


def _derivative(axis: int, y: Any, g: Any) -> Any:
    """Tangents, and gradients alike: the matrix of derivatives is symmetric."""
    z, slope = wide(jnp.where(jnp.isnan(y), jnp.zeros_like(y), y)), wide(g)
    return (z * subtract(slope, total(z * slope, (axis,)))).astype(y.dtype)


def _backward(axis: int, y: Any, g: Any) -> tuple[Any]:
    return (_derivative(axis, y, g),)


def _push(axis: int, y: Any, tangents: tuple[Any]) -> Any:
    return _derivative(axis, y, *tangents)


softmax.defvjp(_forward, _backward, _push)


def log_softmax(x: Array, axis: int) -> Array:
    """Logarithm of the softmax."""
    data = wide(x)
    shifted = subtract(data, lax.stop_gradient(largest(data, (axis,))))
    return subtract(shifted, log(total(exp(shifted), (axis,)))).astype(x.dtype)


def _hardmax(x: Array, axis: int) -> Array:
    if not x.size:
        return x
    return jax.nn.one_hot(first_extreme(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


def _without_maximum(x: Array, axis: int) -> Array:
    """PopART's enableNonStableSoftmax."""
    powers = jnp.exp(x)
    return powers / total(powers, (axis,))


def _register(op: str, stable: Callable[[Any, int], Any]) -> None:
    def fn(x: Array, axis: int, options: Options) -> Array:
        plain = op == "Softmax" and options.nonstable_softmax
        return (_without_maximum if plain else stable)(jnp.asarray(x), axis)

    def along_axis(x: Array, /, *, axis: int = -1, options: Options = DEFAULTS) -> Array:
        return fn(x, normal_axis(axis, x.ndim), options)

    def flattened(x: Array, /, *, axis: int = 1, options: Options = DEFAULTS) -> Array:
        told = "LogSoftmax axis, {}, is outside of acceptable range" if op == "LogSoftmax" else AXIS
        split = axis if axis == x.ndim and op != "LogSoftmax" else normal_axis(axis, x.ndim, told)
        if split == x.ndim - 1:  # where a reshape would keep XLA:CPU from fusing attention
            return fn(x, split, options)
        rows = jnp.reshape(x, (math.prod(x.shape[:split]), math.prod(x.shape[split:])))
        return fn(rows, 1, options).reshape(x.shape)

    lowers(op, 13)(along_axis)
    lowers(op, 1)(flattened)


operator(
    "Softmax",
    ROUNDS | ROW_BY_ROW,
    gradients=gradient("g y0", kernel=True),
    inplace=True,
    batch="softmax",
    popxl=as_onnx(11, runs=13),
    neutral="unlikely",
)

_register("Softmax", softmax)
operator("LogSoftmax", ROUNDS | ROW_BY_ROW, gradients="g y0", inplace=True, batch="softmax", neutral="unlikely")

_register("LogSoftmax", log_softmax)
operator("Hardmax", ROW_BY_ROW)
_register("Hardmax", _hardmax)
