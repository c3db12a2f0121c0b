"""Depthwise convolutions (one kernel per channel), channels first, as shifted multiply-adds.

XLA fuses them; its grouped convolution is scalar code on the CPU (jaxlib 0.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...ops.convolution import convolve
from ...ops.primitives import add, multiply
from ...ops.windows import Pads, Window, taps, window

_MANY_TAPS = 64


@convolve.form_for("cpu")
def convolve_by_channel(
    x: jax.Array,
    w: jax.Array,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    group: int = 1,
    data_dilations: Sequence[int] | None = None,
) -> jax.Array:
    """Depthwise convolutions of floats with small windows as shifted multiply-adds, all others in the plain form."""
    depthwise = group > 1 and w.shape[1] == 1 and prod(w.shape[2:]) <= _MANY_TAPS
    usual = jnp.issubdtype(x.dtype, jnp.floating) and data_dilations is None and min(map(min, pads)) >= 0
    if not (depthwise and usual):
        return convolve.plain(x, w, strides, pads, dilations, group, data_dilations)
    flat = (*(low for low, _ in pads), *(high for _, high in pads))
    win = window(x.shape[2:], w.shape[2:], strides, dilations, flat)
    return cast("jax.Array", _depthwise(x, w, win))


@partial(jax.jit, static_argnames=("win",))
def _depthwise(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """The depthwise convolution, with sums in at least single precision."""
    multiplier = w.shape[0] // x.shape[1]
    precise = jnp.promote_types(x.dtype, jnp.float32)
    around = [(low, high, 0) for low, high in ((0, 0), (0, 0), *win.pads)]
    padded = lax.pad(x.astype(precise), np.zeros((), precise), around)
    padded = jnp.repeat(padded, multiplier, axis=1) if multiplier > 1 else padded
    columns = w.reshape(w.shape[0], -1).T.reshape(-1, w.shape[0], *(1,) * len(win.kernel))
    products = [multiply(tap, lax.slice_in_dim(columns, i, i + 1)) for i, tap in enumerate(taps(padded, win))]
    return reduce(add, products).astype(x.dtype)
