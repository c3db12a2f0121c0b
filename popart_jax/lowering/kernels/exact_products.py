"""Matrix products and convolutions of 8-bit integers on GPUs and TPUs.

A GPU's library has no convolution of 32-bit integers. So numbers less their zero points, which are at most 255, are
multiplied as floats: the units that round operands, to bfloat16 at least, keep them. Sums of 256 products stay below
2**24, so float32 holds them exactly in any order; longer sums are made of such parts, which are added as integers.
Convolutions are products of the kernel's taps: other algorithms do not keep whole numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...ops.arrays import merge_axes, split_axis
from ...ops.windows import Window
from .depthwise_last import padded_taps

PLATFORMS = ("gpu", "tpu")
TERMS = 256
"""Products that float32 adds exactly: 256 * 255**2 is less than 2**24."""


def product(a: Any, b: Any) -> jax.Array:
    """INT32 matrix product (..., r, k) x (..., k, c) of integers of at most 255."""
    terms = a.shape[-1]
    if terms <= TERMS:
        return _part("...rk,...kc->...rc", a, b)
    pieces = -(-terms // TERMS)
    more = pieces * TERMS - terms
    left = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, more)]).reshape(*a.shape[:-1], pieces, TERMS)
    right = jnp.pad(b, [(0, 0)] * (b.ndim - 2) + [(0, more), (0, 0)])
    parts = _part("...rpk,...pkc->...prc", left, right.reshape(*b.shape[:-2], pieces, TERMS, b.shape[-1]))
    return parts.sum(-3, dtype=jnp.int32)


def _part(shapes: str, a: Any, b: Any) -> jax.Array:
    floats = a.astype(jnp.float32), b.astype(jnp.float32)
    return jnp.einsum(shapes, *floats, precision=lax.Precision.DEFAULT).astype(jnp.int32)


def correlation(x: Any, w: Any, group: int, win: Window) -> jax.Array:
    """INT32 correlation of integers of at most 255: x (N, ..., C) with w (..., C/group, M)."""
    found = jnp.stack(padded_taps(x, win), -2)
    grouped = split_axis(found, -1, group).swapaxes(-3, -2)  # (N, ..., group, taps, C/group)
    columns = merge_axes(grouped, -2)
    kernels = split_axis(merge_axes(w, 0, -1), 1, group).swapaxes(0, 1)  # (group, taps * C/group, M/group)
    places = columns.shape[:-2]
    rows = merge_axes(columns, 0, -2).swapaxes(0, 1)
    return product(rows, kernels).swapaxes(0, 1).reshape(*places, w.shape[-1])
