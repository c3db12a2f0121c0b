"""Convolutions of single places (kernels of one element), channels last: products by XLA's own code or by YNNPACK.

XLA gives products to YNNPACK where its options say so, but no products that it makes of convolutions, so the form
chooses. In us by XLA and by YNNPACK (AMD EPYC, two cores, jaxlib 0.10, 60 layers): 56 x 56 x 24 to 144 58 and 87, 14 x
14 x 64 to 384 34 and 45, 28 x 28 x 192 to 32 35 and 32, 20 x 20 x 128 to 256 80 and 100. YNNPACK is faster for few
places with many weights (7 x 7 x 160 to 960 70 and 46, 320 to 1,280 161 and 120) and for large products (14 x 14 x 256
to 1,024 303 and 249, 7 x 7 x 2,048 to 512 374 and 259), but not with an odd number of filters (8 times 10 x 10 x 512
to 255 522 and 599).
"""

from __future__ import annotations

import math

import jax
import numpy as np
from jax import lax

from ..._compat.jax import is_symbolic_dim
from ...ops.arrays import merge_axes
from ...ops.gradients import pulled_back
from ...ops.kernels import platform
from ...ops.two_way import two_way

_FEW_PLACES, _MANY_WEIGHTS = 64, 90_000
_MANY_PRODUCTS, _BLOCK = 20_000_000, 16


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x (N, ..., C) times w (C, M), in the form that is faster on the platform."""
    places = x.shape[:-1]
    if platform() != "cpu" or not x.dtype == w.dtype == np.float32 or any(map(is_symbolic_dim, places)):
        return x @ w
    count = math.prod(places)
    few = count <= _FEW_PLACES and w.size >= _MANY_WEIGHTS
    large = count * w.size >= _MANY_PRODUCTS and w.shape[-1] % _BLOCK == 0
    return x @ w if few or large else _by_xla(x, w)


@two_way
def _by_xla(x: jax.Array, w: jax.Array) -> jax.Array:
    flat = merge_axes(x, 0, -1)[None]
    y = lax.conv_general_dilated(flat, w.reshape(1, *w.shape), (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"))
    return y.reshape(*x.shape[:-1], w.shape[-1])


def _forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _by_xla(x, w), (x, w)


def _backward(saved: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    return pulled_back(lambda x: x @ w, x, g), pulled_back(lambda w: x @ w, w, g)


def _push(saved: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]) -> jax.Array:
    (x, w), (of_x, of_w) = saved, tangents
    return _by_xla(of_x, w) + _by_xla(x, of_w)


_by_xla.defvjp(_forward, _backward, _push)
