"""Channels-last convolutions whose gradients are written with dimensions in the order that XLA's kernels require.

Why: XLA:CPU reorders the dimensions of convolutions itself, but not inside loops; there the weight gradient that JAX
derives is 40 to 100 times slower (jaxlib 0.10), and sessions loop over the batches of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...ops.two_way import two_way

Pads = tuple[tuple[int, int], ...]
Layout = tuple[str, str, str]


def layout(rank: int) -> Layout:
    """Dimension numbers of `lax.conv_general_dilated` for channels-last data of this rank and weights (..., C, M)."""
    spatial = "DHW"[5 - rank :]
    return (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")


@partial(two_way, nondiff_argnums=(2, 3, 4))
def canonical_convolution(
    x: jax.Array, w: jax.Array, strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...]
) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., C, M), of one to three spatial dimensions."""
    return _convolved(x, w, strides, pads, dilations)


def _convolved(
    x: jax.Array, w: jax.Array, strides: Sequence[int], pads: Sequence[tuple[int, int]], dilations: Sequence[int]
) -> jax.Array:
    """The convolution; where windows are larger than the data, the data are padded first.

    For 8 images of 2 x 2 x 512 and windows of 3 x 3, XLA:CPU takes 580 ms with its own padding and 13 ms on data padded
    before an optimization barrier; without it XLA merges the padding into the convolution (jaxlib 0.10, 2 cores).
    Gradients of weights are such convolutions where padded even windows make the result larger than the data: of
    8 x 14 x 14 x 64 by 2 x 2 they take 28 ms and 1.8.
    """
    larger = any(k > n for k, n in zip(_spread(w.shape[:-2], dilations), x.shape[1:-1], strict=True))
    if larger and min(min(pad) for pad in pads) >= 0:
        around = [(0, 0, 0), *((low, high, 0) for low, high in pads), (0, 0, 0)]
        x = lax.optimization_barrier(lax.pad(x, jnp.zeros((), x.dtype), around))
        pads = [(0, 0)] * len(pads)
    return lax.conv_general_dilated(x, w, strides, pads, None, dilations, layout(x.ndim))


def _forward(
    x: jax.Array, w: jax.Array, strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...]
) -> tuple[Any, tuple[jax.Array, jax.Array]]:
    return canonical_convolution(x, w, strides, pads, dilations), (x, w)


def _backward(
    strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...], saved: Any, g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    spatial = x.shape[1:-1]
    return _data_gradient(spatial, w, g, strides, pads, dilations), _weight_gradient(x, w, g, strides, pads, dilations)


canonical_convolution.defvjp(_forward, _backward)


@partial(two_way, nondiff_argnums=(2, 3, 4, 5))
def canonical_transposed(
    x: jax.Array,
    w: jax.Array,
    spatial: tuple[int, ...],
    strides: tuple[int, ...],
    pads: Pads,
    dilations: tuple[int, ...],
) -> jax.Array:
    """The transposed convolution: the data gradient of `canonical_convolution` for data of this spatial size.

    `x` is (N, ..., M), `w` (..., C, M) the weights of the convolution that is transposed, whose strides, pads and
    dilations these are; the result is (N, *spatial, C).
    """
    return _data_gradient(spatial, w, x, strides, pads, dilations)


def _forward_transposed(
    x: jax.Array,
    w: jax.Array,
    spatial: tuple[int, ...],
    strides: tuple[int, ...],
    pads: Pads,
    dilations: tuple[int, ...],
) -> tuple[Any, tuple[jax.Array, jax.Array]]:
    return canonical_transposed(x, w, spatial, strides, pads, dilations), (x, w)


def _backward_transposed(
    spatial: tuple[int, ...], strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...], saved: Any, g: jax.Array
) -> tuple[Any, jax.Array]:
    x, w = saved
    return canonical_convolution(g, w, strides, pads, dilations), _weight_gradient(g, w, x, strides, pads, dilations)


canonical_transposed.defvjp(_forward_transposed, _backward_transposed)


def _spread(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Extent of a window or image whose elements are `steps` apart (dilated)."""
    return [(n - 1) * s + 1 for n, s in zip(sizes, steps, strict=True)]


def _data_gradient(
    spatial: Sequence[int],
    w: jax.Array,
    g: jax.Array,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
) -> jax.Array:
    """Data gradient: the output gradient, dilated by the strides, correlated with the flipped window."""
    window, image = _spread(w.shape[:-2], dilations), _spread(g.shape[1:-1], strides)
    before = [k - 1 - lo for k, (lo, _) in zip(window, pads, strict=True)]
    after = [n + k - 1 - m - b for n, k, m, b in zip(spatial, window, image, before, strict=True)]
    turned = jnp.flip(w, range(w.ndim - 2)).swapaxes(-1, -2)
    padding = list(zip(before, after, strict=True))
    if set(strides) == {1}:
        return _convolved(g, turned, strides, padding, dilations)
    return lax.conv_general_dilated(g, turned, (1,) * len(strides), padding, strides, dilations, layout(g.ndim))


_MANY_TIMES = 4


def _weight_gradient(
    x: jax.Array,
    w: jax.Array,
    g: jax.Array,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
) -> jax.Array:
    """Weight gradient: a convolution with batch and channels exchanged, whose window is the output gradient.

    If there are far more input than output channels, the two exchange their roles and the result is flipped: for 512
    channels to 16 on 32 x 32 with windows of 3 x 3, XLA:CPU takes 2 ms in place of 28.
    """
    few = w.shape[-2] >= _MANY_TIMES * w.shape[-1] and {*strides, *dilations} == {1}
    if few and all(m >= n for m, n in zip(g.shape[1:-1], x.shape[1:-1], strict=True)):  # windows no larger than images
        turned_pads = [(k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(w.shape[:-2], pads, strict=True)]
        turned = _weight_gradient(g, w.swapaxes(-1, -2), x, strides, turned_pads, dilations)
        return jnp.flip(turned, range(w.ndim - 2)).swapaxes(-1, -2)
    window, image = _spread(w.shape[:-2], dilations), _spread(g.shape[1:-1], strides)
    before = [lo for lo, _ in pads]
    after = [m + k - 1 - n - b for n, k, m, b in zip(x.shape[1:-1], window, image, before, strict=True)]
    images, kernel = x.swapaxes(0, -1), jnp.moveaxis(g, 0, -2)
    padding = list(zip(before, after, strict=True))
    return jnp.moveaxis(_convolved(images, kernel, dilations, padding, strides), 0, -2)
