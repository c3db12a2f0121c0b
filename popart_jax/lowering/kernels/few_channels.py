"""Small convolutions of one to a few channels, channels last, as shifted multiply-adds that XLA makes one loop of.

XLA's convolution multiplies matrices, which are mostly padding here. In us, its time and this one's (AMD EPYC, two
cores, 75 layers of random shapes): 28 x 28 x 1 to 4 by 3 x 3 25 and 7, 8 times 28 x 14 x 1 to 6 by 7 x 7 219 and 33,
96 x 96 x 1 to 16 by 3 x 3 144 and 19, 2 times 40 x 40 x 3 to 32 by 3 x 3 at stride 2 61 and 19; oneDNN is between the
two. Results of larger layers leave the cache between the terms: 128 x 64 x 1 to 64 175 and 409.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ..._compat.jax import kept_call
from ...ops.gradients import pulled_back
from ...ops.kernels import platform
from ...ops.primitives import add, multiply
from ...ops.two_way import two_way
from ...ops.windows import Window
from .convolution import convolution
from .depthwise_last import padded_taps

_MANY_TERMS, MANY_PRODUCTS = 49, 3_000_000
_FEW_PRODUCTS = 700_000
"""Up to which one thread is faster than two, of which one must be woken.

In us, by one and by two: 24 x 24 x 1 to 4 by 7 x 7 at stride 2 6 and 50, 12 x 12 x 1 to 48 by 3 x 3 7 and 51, 28 x 28
x 1 to 32 28 and 30, by 5 x 5 41 and 52; 2 times 24 x 24 x 3 to 28 61 and 62.
"""


def suits(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether a convolution of x (N, ..., C) with w (..., C, M) is computed here: on the CPU, where it is small."""
    few = group == 1 and math.prod(win.kernel) > 1 and w.size > 0 and math.prod(w.shape[:-1]) <= _MANY_TERMS
    return few and platform() == "cpu" and _products(x, w, win) <= MANY_PRODUCTS


def _products(x: Any, w: Any, win: Window) -> int:
    return x.shape[0] * math.prod(win.positions) * w.size


@partial(two_way, nondiff_argnums=(2,))
def correlation(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., C, M); its gradients are those of XLA's convolution, which are faster.

    A kernel of its own, or XLA computes it again for each element of a pool that reads it.
    """
    return sum_of_terms(x, w, win)


def sum_of_terms(x: Any, w: Any, win: Window) -> jax.Array:
    """The same of any type of numbers, without rules of derivatives."""
    if _products(x, w, win) > _FEW_PRODUCTS:
        return kept_call(partial(_sum_of_terms, win=win), x, w)
    rows = kept_call(partial(_in_one_loop, win=win), x, w)
    return rows[:-1].reshape(x.shape[0], *win.positions, w.shape[-1])


def _in_one_loop(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """Rows of the result and another one; XLA divides no loop among threads that writes into a larger buffer."""
    rows = _sum_of_terms(x, w, win).reshape(-1, w.shape[-1])
    larger = kept_call(partial(jnp.zeros, (len(rows) + 1, w.shape[-1]), rows.dtype))
    return lax.dynamic_update_slice(larger, rows, (0, 0))


def _sum_of_terms(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    rows = w.reshape(-1, w.shape[-1])
    channels = range(x.shape[-1])
    columns = [lax.slice_in_dim(tap, c, c + 1, axis=-1) for tap in padded_taps(x, win) for c in channels]
    terms = [multiply(column, lax.slice_in_dim(rows, i, i + 1)) for i, column in enumerate(columns)]
    return reduce(add, terms)


def _forward(x: jax.Array, w: jax.Array, win: Window) -> tuple[Any, tuple[jax.Array, jax.Array]]:
    return correlation(x, w, win), (x, w)


def _backward(win: Window, saved: Any, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    def by_xla(x: jax.Array, w: jax.Array) -> jax.Array:
        return convolution(x, w, 1, tuple(win.strides), tuple(win.pads), tuple(win.dilations))

    x, w = saved
    of_x = pulled_back(lambda x: by_xla(x, w), x, g)
    return of_x, pulled_back(lambda w: by_xla(x, w), w, g)


def _push(win: Window, saved: Any, tangents: Any) -> jax.Array:
    (x, w), (of_x, of_w) = saved, tangents
    return correlation(cast("jax.Array", of_x), w, win) + correlation(x, of_w, win)


correlation.defvjp(_forward, _backward, _push)
