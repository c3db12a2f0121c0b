"""Convolutions of few places with many weights, channels last, as one product of the data under each window.

oneDNN orders the weights at each call, which takes as long as the rest, and XLA's convolution multiplies narrow blocks.
In us, by XLA, oneDNN and this product, which YNNPACK computes (AMD EPYC, two cores, 25 layers): 7 x 7 x 512 to 512 by
3 x 3 1632, 897 and 807, 8 times 2 x 2 x 512 to 512 1518, 1611 and 684, 14 x 14 x 256 to 512 at stride 2 830, 490 and
418, 4 x 4 x 512 to 512 313, 561 and 260; with fewer weights, 6 x 6 x 96 to 128, 50, 84 and 65.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._compat.jax import kept_call
from ...ops.gradients import pulled_back
from ...ops.kernels import may_order_weights, platform
from ...ops.two_way import two_way
from ...ops.windows import Window, padded
from . import ordered_weights
from .depthwise_last import padded_taps

_MANY_WEIGHTS = 140_000
_MANY_OF_PLACES, _SOME_PLACES = 250_000, 256
"""Least weights, and most places, of single places for which oneDNN's order pays."""
_BY_ROW = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


def suits(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether a convolution of x (N, ..., C), of known sizes, with w (..., C, M) is computed here: on the CPU."""
    several = group == 1 and math.prod(win.kernel) > 1 and w.size >= _MANY_WEIGHTS
    return several and platform() == "cpu" and has_few_places(x, w, win)


def suits_order(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether to compute the convolution of x (N, ..., C) with w (..., C, M), of known sizes, by `by_order`."""
    places, single = (x.shape[0], *win.positions), math.prod(win.kernel) == 1
    least, most = (_MANY_OF_PLACES, _SOME_PLACES) if single else (_MANY_WEIGHTS, w.shape[-1])
    if group > 1 or not may_order_weights() or w.size < least or math.prod(places) > most:
        return False
    return ordered_weights.is_filled(w) and ordered_weights.is_read_so("float32", places, w)


def has_few_places(x: Any, w: Any, win: Window) -> bool:
    """Whether there are at most half as many places as filters: windows in rows are less to write than weights."""
    return 2 * x.shape[0] * math.prod(win.positions) <= w.shape[-1]


def correlation(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., C, M)."""
    return rows(x, win) @ w.reshape(-1, w.shape[-1])


def by_order(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """The same with weights in oneDNN's own order, which programs of ours have where weights stay as they are."""
    return ordered_weights.product(in_rows(x, win), w)


def in_rows(x: jax.Array, win: Window) -> jax.Array:
    """The data under each window, (N, ..., taps times C), also of single taps."""
    return padded_taps(x, win)[0] if math.prod(win.kernel) == 1 else rows(x, win)


@partial(two_way, nondiff_argnums=(1,))
def rows(x: jax.Array, win: Window) -> jax.Array:
    """The data under each window, (N, ..., taps times C).

    One kernel, that equal layers share; with a slice for each tap XLA compiles a kernel for each, in three times the
    time.
    """
    found = kept_call(partial(_gathered, win=win), x)
    return found.reshape(x.shape[0], *win.positions, math.prod(win.kernel) * x.shape[-1])


def _gathered(x: jax.Array, win: Window) -> jax.Array:
    """The same as rows of C numbers; if they were longer, XLA would not copy them by vectors."""
    data, channels = padded(x, win), x.shape[-1]
    places, images = jnp.asarray(_places(data.shape[1:-1], win)), len(data)
    if images != 1:
        starts = lax.iota(np.int32, images) * math.prod(data.shape[1:-1])
        places = starts[:, None] + places
    flat = data.reshape(math.prod(data.shape[:-1]), channels)
    return lax.gather(flat, places.reshape(-1, 1), _BY_ROW, (1, channels), mode="promise_in_bounds")


def _places(sizes: tuple[int, ...], win: Window) -> np.ndarray:
    """For each window and tap, the number of its place among those of a padded image."""
    numbers = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    windows = np.lib.stride_tricks.sliding_window_view(numbers, win.reach)
    at = tuple(slice(0, n * s, s) for n, s in zip(win.positions, win.strides, strict=True))
    taps = tuple(slice(None, None, d) for d in win.dilations)
    return windows[(*at, *taps)].reshape(-1)


def _by_taps(x: jax.Array, win: Window) -> jax.Array:
    return jnp.concatenate(padded_taps(x, win), axis=-1)


def _forward(x: jax.Array, win: Window) -> tuple[jax.Array, jax.Array]:
    return rows(x, win), x


def _backward(win: Window, x: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    """Slices become sums of padded gradients, which are faster than additions at each index."""
    return (pulled_back(partial(_by_taps, win=win), x, g),)


def _push(win: Window, x: jax.Array, tangents: tuple[jax.Array]) -> jax.Array:
    return rows(tangents[0], win)


rows.defvjp(_forward, _backward, _push)
