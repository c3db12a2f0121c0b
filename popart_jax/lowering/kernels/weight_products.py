"""Weight gradients of convolutions, channels last: products of what is under each window with the output gradient.

XLA computes them as convolutions whose windows are whole maps, or as products with many terms a sum, at which oneDNN is
faster. In ms of a whole training step, by XLA and by oneDNN (AMD EPYC, two cores): 8 x 56 x 56 x 64 to 64 by 3 x 3 24.1
and 17.9, 28 x 28 x 64 to 64 dilated 5.9 and 5.0, 2 x 28 x 28 x 96 to 2,048 by 1 x 1 18.0 and 6.4, 8 x 16 x 16 x 128 to
16 by 1 x 1 0.82 and 0.65; ResNet-18 326 and 286, MobileNetV2 168 and 132, both at batch 8.
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
from ...ops.windows import Window, padded
from . import few_places, onednn

_LEAST, _MANY_PLACES = 1_000_000, 256
"""Multiplications, and terms of a sum, from which it is faster: 1,024 x 16 to 1,024 by 3 takes 3.4 of XLA's time."""
_SOME_FILTERS = 16
"""The same for filters of one place: 2 x 256 x 256 to 8 takes 1.1 of XLA's time."""
_IMAGE, _SMALL_WINDOW, _SEVERAL_CHANNELS, _MANY_FILTERS, _MANY_WINDOWS = 2, 9, 5, 64, 784
"""The same for windows: their data, written as rows, must meet many filters. Of a training step's time by XLA: 4 x 32 x
32 x 512 to 16 by 3 x 3 1.3, 112 x 112 x 16 to 32 by 7 x 7 1.2, 112 x 112 x 3 to 64 by 7 x 7 1.3, one dimension 1.2.
"""
_FEW_FILTERS = 24
"""Up to so many filters XLA is slow with windows that are dilated or strided, and one product for each element of the
window is faster. In ms of the gradient alone, by XLA and by oneDNN (Intel Xeon, two cores): 112 x 112 x 128 to 16 by
4 x 4 dilated 57.8 and 14.2, 56 x 56 x 64 to 16 by 3 x 3 dilated 3.2 and 1.2, 14 x 14 x 64 to 16 0.28 and 0.12, 56 x
56 x 64 to 16 at stride 2 1.33 and 0.60; but to 32 dilated 1.4 and 1.5, to 16 with neither 0.5 and 1.0.
"""
_MOST = 4_000_000
"""Numbers that are written at a time: 16 MB, which the cache holds, of as many images as that allows."""


def suits(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether the weight gradient of a convolution of x (N, ..., C) with w (..., C, M) is computed here."""
    places = x.shape[0] * math.prod(win.positions)
    many = group == 1 and places * w.size >= _LEAST
    return many and _suits_sizes(x, w, places, win) and onednn.usable() and onednn.sums_products()


def _suits_sizes(x: Any, w: Any, places: int, win: Window) -> bool:
    *kernel, channels, filters = w.shape
    if _is_by_element(w.shape, win):
        return True
    if places < _MANY_PLACES or not _parts(x, win):
        return False
    if math.prod(kernel) == 1:
        return filters >= _SOME_FILTERS
    small = len(kernel) == _IMAGE and math.prod(kernel) <= _SMALL_WINDOW and channels >= _SEVERAL_CHANNELS
    return small and filters >= _MANY_FILTERS and places >= _MANY_WINDOWS


def _is_by_element(shape: tuple[int, ...], win: Window) -> bool:
    """Whether the gradient of weights of this shape is one product for each element of the window."""
    *kernel, channels, filters = shape
    image = len(kernel) == _IMAGE and math.prod(kernel) > 1 and channels >= _SEVERAL_CHANNELS
    return image and filters <= _FEW_FILTERS and {*win.dilations, *win.strides} != {1}


def weight_gradient(x: jax.Array, g: jax.Array, *, win: Window) -> jax.Array:
    """The gradient (..., C, M) for data x (N, ..., C) and an output gradient g (N, ..., M)."""
    if _is_by_element((*win.kernel, x.shape[-1], g.shape[-1]), win):
        return _by_element(x, g, win)
    parts = _parts(x, win)
    product = partial(
        kept_call, partial(_product, win=win)
    )  # or XLA writes the rows in the forward pass, and keeps them
    if parts == 1:
        return product(x, g)

    images = x.shape[0] // parts

    def add_part(total: jax.Array, first: jax.Array) -> tuple[jax.Array, None]:
        return total + product(*(lax.dynamic_slice_in_dim(a, first, images) for a in (x, g))), None

    # whole arrays go into the loop: of arrays cut into parts XLA computes another copy, beside that for other readers
    nothing = jnp.zeros((*win.kernel, x.shape[-1], g.shape[-1]), x.dtype)
    return lax.scan(add_part, nothing, jnp.arange(0, x.shape[0], images))[0]


def _parts(x: Any, win: Window) -> int:
    """Into how many parts the images are divided; 0 if one image is too large."""
    images = x.shape[0]
    numbers = images * math.prod((*win.positions, *win.kernel)) * x.shape[-1]
    return next((n for n in range(1, images + 1) if images % n == 0 and numbers <= n * _MOST), 0)


def _by_element(x: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    """One product for each element of the window, whatever the number of images."""
    data, columns = padded(x, win), g.reshape(-1, g.shape[-1])
    spans = [(n - 1) * s + 1 for n, s in zip(win.positions, win.strides, strict=True)]
    every = (slice(None), *(slice(None, None, s) for s in win.strides))

    def element(_: None, first: jax.Array) -> tuple[None, jax.Array]:
        met = lax.dynamic_slice(data, (0, *first, 0), (x.shape[0], *spans, x.shape[-1]))[every]
        return None, _summed_product(met.reshape(-1, x.shape[-1]), columns)

    first = np.indices(win.kernel).reshape(len(win.kernel), -1).T * np.array(win.dilations)
    found = lax.scan(element, None, jnp.asarray(first, np.int32))[1]
    return found.reshape(*win.kernel, x.shape[-1], g.shape[-1])


def _product(x: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    """The same of few images, by windows written as rows."""
    rows = few_places.in_rows(x, win)
    rows = rows.reshape(-1, math.prod(win.kernel) * x.shape[-1])
    y = _summed_product(rows, g.reshape(-1, g.shape[-1]))
    return y.reshape(*win.kernel, x.shape[-1], g.shape[-1])


def _summed_product(rows: jax.Array, columns: jax.Array) -> jax.Array:
    """oneDNN reads the wider operand faster as it is, so that it comes second."""
    wide = rows.shape[1] > columns.shape[1]
    return onednn.summed_product(columns, rows).T if wide else onednn.summed_product(rows, columns)
