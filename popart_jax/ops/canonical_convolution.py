"""A channels-last convolution whose gradients are written with the dimensions in the order that XLA's kernels want.

Why: XLA:CPU brings convolutions into that order itself, but not inside loops; there the weight gradient that JAX
derives runs 40 to 100 times slower (jaxlib 0.10), and sessions loop over the batches of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from .two_way import two_way

Pads = tuple[tuple[int, int], ...]
_LAYOUT = ("NHWC", "HWIO", "NHWC")


@partial(two_way, nondiff_argnums=(2, 3, 4))
def canonical_convolution(
    x: jax.Array, w: jax.Array, strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...]
) -> jax.Array:
    """Correlation of x (N, H, W, C) with w (kh, kw, C, M)."""
    return lax.conv_general_dilated(x, w, strides, pads, None, dilations, _LAYOUT)


def _forward(x, w, strides, pads, dilations):
    return canonical_convolution(x, w, strides, pads, dilations), (x, w)


def _backward(strides, pads, dilations, saved, g):
    x, w = saved
    return _data_gradient(x, w, g, strides, pads, dilations), _weight_gradient(x, w, g, strides, pads, dilations)


canonical_convolution.defvjp(_forward, _backward)


def _spread(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Extent of a window or image whose elements are `steps` apart."""
    return [(n - 1) * s + 1 for n, s in zip(sizes, steps, strict=True)]


def _data_gradient(x, w, g, strides, pads, dilations):
    """The gradient spread by the strides, correlated with the turned window."""
    window, image = _spread(w.shape[:2], dilations), _spread(g.shape[1:3], strides)
    before = [k - 1 - lo for k, (lo, _) in zip(window, pads, strict=True)]
    after = [n + k - 1 - m - b for n, k, m, b in zip(x.shape[1:3], window, image, before, strict=True)]
    turned = jnp.flip(w, (0, 1)).swapaxes(2, 3)
    padding = list(zip(before, after, strict=True))
    return lax.conv_general_dilated(g, turned, (1, 1), padding, strides, dilations, _LAYOUT)


def _weight_gradient(x, w, g, strides, pads, dilations):
    """Images as channels and channels as images: the gradient is the window."""
    window, image = _spread(w.shape[:2], dilations), _spread(g.shape[1:3], strides)
    before = [lo for lo, _ in pads]
    after = [m + k - 1 - n - b for n, k, m, b in zip(x.shape[1:3], window, image, before, strict=True)]
    images = x.transpose(3, 1, 2, 0)
    padding = list(zip(before, after, strict=True))
    found = lax.conv_general_dilated(images, g.transpose(1, 2, 0, 3), dilations, padding, None, strides, _LAYOUT)
    return found.transpose(1, 2, 0, 3)
