"""Sums over all places, for the weight gradients of depthwise convolutions, in loops that XLA:CPU vectorises.

LLVM vectorises innermost loops. One reduction over all places has the places innermost, whose sums may not be taken in
another order, so it is scalar code. Here the sums over some neighbouring rows are written out, but for one short loop
that LLVM unrolls; what is left innermost are the channels. That loop must stay: a reduction is the only kernel of
XLA:CPU with several results, which share what they read. In ms, one reduction and these loops (AMD EPYC, two cores):
8 x 56 x 56 x 96 by 3 x 3 2.5 and 0.9, at stride 2 1.1 and 0.5, 8 x 14 x 14 x 384 by 5 x 5 1.3 and 0.5, 8 x 28 x 28 x
128 by 7 x 7 4.0 and 1.3. Sums of fewer terms are more exact as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...ops.primitives import add, multiply
from ...ops.windows import Window, taps

_MANY_SUMS = 7
"""Most results of one kernel."""
_MANY_PRODUCTS = 84
"""Most products behind one element of each result, all results together: LLVM does not unroll much more."""


def sums_over_places(data: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    """For each window element and channel, the sum of products of the data under it with g (N, ..., C).

    The data are padded, and the window has a dimension for the channels. There are at least two places along some
    dimension, and the longest one is cut into rows.
    """
    longest = int(np.argmax(win.positions[:-1]))
    axis, length = longest + 1, win.positions[longest]
    rows, rest = _rows(length, _MANY_PRODUCTS // -(-math.prod(win.kernel) // _kernels(win)))
    total = _by_rows(data, lax.slice_in_dim(g, 0, length - rest, axis=axis), win, axis, rows)
    if not rest:
        return total
    of_rest = lax.slice_in_dim(g, length - rest, length, axis=axis)
    under = lax.slice_in_dim(data, (length - rest) * win.strides[longest], None, axis=axis)
    return add(total, sums_in_one(under, of_rest, replace(win, positions=of_rest.shape[1:])))


def sums_in_one(data: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    """The same in one reduction over the places of an image, and another one over the images."""
    products = [multiply(tap, g) for tap in taps(data, win)]
    return jnp.stack([one.sum(0) for one in _reduced(products, range(1, g.ndim - 1))])


def _by_rows(data: jax.Array, g: jax.Array, win: Window, axis: int, rows: int) -> jax.Array:
    """The same for a multiple of `rows` rows along an axis."""
    loop = next(n for n in range(2, rows + 1) if rows % n == 0)
    apart = rows // loop
    rare = _every(win, axis - 1, apart, g.shape[axis] // apart)
    products: list[list[jax.Array]] = []
    for row in range(apart):
        of_row = lax.slice_in_dim(g, row, None, apart, axis)
        under = lax.slice_in_dim(data, row * win.strides[axis - 1], None, axis=axis)
        products.append([multiply(tap, of_row) for tap in taps(under, rare)])
    shape = (*g.shape[:axis], -1, loop, *g.shape[axis + 1 :])
    terms = [reduce(add, of_tap).reshape(shape) for of_tap in zip(*products, strict=True)]
    found: list[jax.Array] = []
    for part in np.array_split(np.arange(len(terms)), _kernels(win)):
        found += _reduced([terms[i] for i in part], (axis + 1,))
    return jnp.stack([one.sum(range(g.ndim - 1)) for one in found])


def _kernels(win: Window) -> int:
    """Number of kernels that share the window elements."""
    return -(-math.prod(win.kernel) // _MANY_SUMS)


def _every(win: Window, dim: int, apart: int, count: int) -> Window:
    """The window at only `count` positions along a dimension, which are so many times as far apart."""
    strides = tuple(s * apart if i == dim else s for i, s in enumerate(win.strides))
    return replace(win, strides=strides, positions=tuple(count if i == dim else n for i, n in enumerate(win.positions)))


def _rows(length: int, most: int) -> tuple[int, int]:
    """How many rows to add up at a time, at most so many, and how many rows that leaves over."""
    if length <= most:
        return length, 0
    fitting = ((n, rest) for rest in range(length) for n in range(most, most // 2, -1) if (length - rest) % n == 0)
    return next(fitting)


def _reduced(terms: Sequence[jax.Array], axes: Sequence[int]) -> list[jax.Array]:
    """Sums of all terms over the axes, in one reduction."""
    nothing = np.zeros((), terms[0].dtype)

    def added(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        return tuple(add(p, q) for p, q in zip(a, b, strict=True))

    return list(lax.reduce(tuple(terms), (nothing,) * len(terms), added, tuple(axes)))
