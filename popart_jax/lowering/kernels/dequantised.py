"""Matrix products and convolutions of dequantised 8-bit numbers; `passes.quantised` inserts these nodes.

On the CPU the integers are multiplied, and the sums are scaled: ``sum((x - p) s (w - q) t)`` is
``s t sum((x - p)(w - q))``, whose sum is exact. Other platforms dequantise first and multiply floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...ops.arrays import Array
from ...ops.kernels import platform
from ...ops.quantize import LARGEST, dequantize_linear, integer_product
from ...ops.registry import Gap, lowers
from . import DOMAIN
from .channels_last import conv
from .integers import convolution_last


@lowers("DequantisedConv", domain=DOMAIN)
def dequantised_conv(
    x: Array, x_scale: Array, x_zero: Gap, w: Array, w_scale: Array, w_zero: Array | None = None,
    b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1,
    kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Convolution of (N, H, W, C) with (kh, kw, C/group, M); the weight scale is one number, or one per filter."""
    if not _fits(math.prod(w.shape[:-1])):
        y = conv(
            dequantize_linear(x, x_scale, x_zero), dequantize_linear(w, w_scale, w_zero, axis=-1), auto_pad=auto_pad,
            dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
        )  # fmt: skip
        return y if b is None else y + b
    point = None if x_zero is None else x_zero.reshape(())
    whole = convolution_last(x, w, point, w_zero, group, strides, dilations, pads, auto_pad, kernel_shape)
    return _real(whole, x_scale, w_scale, b)


@lowers("DequantisedMatMul", domain=DOMAIN)
def dequantised_matmul(
    x: Array, x_scale: Array, x_zero: Gap, w: Array, w_scale: Array, w_zero: Array | None = None,
    b: Array | None = None, /, *, transB: int = 0,
) -> jax.Array:  # fmt: skip
    """x times w; the weight scale is one number, or one per column."""
    weights = w.T if transB else w
    if not _fits(weights.shape[-2 if weights.ndim > 1 else 0]):
        right = dequantize_linear(weights, w_scale, w_zero, axis=-1)
        y = jnp.matmul(dequantize_linear(x, x_scale, x_zero), right)
        return y if b is None else y + b
    p, q = (None if v is None else v.reshape(()) if np.size(v) == 1 else v for v in (x_zero, w_zero))
    return _real(integer_product(x, weights, p, q), x_scale, w_scale, b)


def _fits(terms: int) -> bool:
    """Whether it runs on the CPU and this many products can be summed in 32 bits."""
    return platform() == "cpu" and terms <= (1 << 31) // LARGEST**2


def _real(whole: jax.Array, x_scale: Any, w_scale: Any, b: Any) -> jax.Array:
    """The integer sums of products, scaled to real numbers, plus the bias."""
    of_columns = w_scale.reshape(() if np.size(w_scale) == 1 else (-1,))
    y = whole.astype(jnp.float32) * (x_scale.reshape(()) * of_columns)
    return y if b is None else y + b
