"""Linear interpolation tap by tap: a matrix product would spread infinities and NaN over the whole axis.

Most of an interpolation matrix is zero, and zero times infinity is NaN. Two taps for each element also take no longer
than the product, which is the faster backward pass (the transpose of taps is a scatter).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...ops.kernels import XLA
from ...ops.resize import blend
from ...ops.two_way import two_way


@dataclass(frozen=True, eq=False)
class _Interpolation:
    matrix: np.ndarray  # (out, in)
    axis: int


@blend.form_for(XLA)
def blend_by_taps(x: jax.Array, matrix: np.ndarray, axis: int) -> jax.Array:
    """See `ops.resize.blend`; more than two elements in a row are left to the product."""
    few = int((matrix != 0).sum(1).max(initial=0)) <= 2
    return _by_taps(_Interpolation(matrix, axis), x) if few else blend.plain(x, matrix, axis)


@partial(two_way, nondiff_argnums=(0,))
def _by_taps(how: _Interpolation, x: jax.Array) -> jax.Array:
    places = np.argsort(how.matrix == 0, axis=1, kind="stable")[:, :2]
    shape = [-1 if d == how.axis else 1 for d in range(x.ndim)]
    total = jnp.zeros((), x.dtype)
    for place, weight in zip(places.T, np.take_along_axis(how.matrix, places, 1).T, strict=True):
        tap = jnp.take(x, place, axis=how.axis) * jnp.asarray(weight.reshape(shape), x.dtype)
        total = total + jnp.where(weight.reshape(shape) == 0, jnp.zeros((), x.dtype), tap)
    return total


def _forward(how: _Interpolation, x: jax.Array) -> tuple[jax.Array, tuple[()]]:
    return _by_taps(how, x), ()


def _backward(how: _Interpolation, saved: Any, g: jax.Array) -> tuple[jax.Array]:
    return (blend.plain(g, how.matrix.T, how.axis),)


def _push(how: _Interpolation, saved: Any, tangents: tuple[jax.Array]) -> jax.Array:
    return _by_taps(how, *tangents)


_by_taps.defvjp(_forward, _backward, _push)
