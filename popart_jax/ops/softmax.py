"""Softmax, LogSoftmax and Hardmax: along one axis, before opset 13 over everything from an axis on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .arrays import Array, normal_axis
from .registry import lowers


def _hardmax(x: Array, axis: int) -> Array:
    return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


def _register(op: str, fn: Callable[[Any, int], Any]) -> None:
    def along_axis(x: Array, /, *, axis: int = -1) -> Array:
        return fn(jnp.asarray(x), normal_axis(axis, x.ndim))

    def flattened(x: Array, /, *, axis: int = 1) -> Array:
        split = axis if axis == x.ndim else normal_axis(axis, x.ndim)
        rows = jnp.reshape(x, (int(np.prod(x.shape[:split])), int(np.prod(x.shape[split:]))))
        return fn(rows, 1).reshape(x.shape)

    lowers(op, 13)(along_axis)
    lowers(op, 1)(flattened)


_register("Softmax", jax.nn.softmax)
_register("LogSoftmax", jax.nn.log_softmax)
_register("Hardmax", _hardmax)
