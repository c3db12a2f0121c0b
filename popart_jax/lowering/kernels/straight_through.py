"""Quantisation with a straight-through gradient: rounded integers stored as float32, differentiated as if unrounded.

Source: Bengio et al., "Estimating or propagating gradients through stochastic neurons" (2013), for the data; the
derivative by the scale is then that of Esser et al., "Learned step size quantization" (2020).
"""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ...ops.arrays import Array, is_float, onnx_dtype
from ...ops.operator import operator
from ...ops.quantize import dequantize_linear, dynamic_quantize_linear, quantized, spread, straight_through
from ...ops.registry import lowers
from . import DOMAIN

operator("StraightThroughQuantize")


@lowers("StraightThroughQuantize", domain=DOMAIN)
def straight_through_quantize(
    x: Array, scale: Array, zero_point: Array | None = None, /, *,
    to: int, axis: int = 1, block_size: int = 0, saturate: int = 1,
) -> Array:  # fmt: skip
    """QuantizeLinear with a float32 result; the derivative is 1 / scale, and 0 where the number is out of range."""
    dtype = np.dtype(onnx_dtype(to))
    data = jnp.asarray(x)
    divisor = spread(scale, x.shape, axis, block_size).astype(data.dtype)
    zero = None if zero_point is None else spread(zero_point, x.shape, axis, block_size)
    hard = quantized(data, divisor, zero, dtype, bool(saturate)).astype(jnp.float32)
    limits = cast("Any", ml_dtypes.finfo(dtype) if is_float(np.zeros(0, dtype)) else ml_dtypes.iinfo(dtype))
    soft = (data / divisor).astype(jnp.float32) + (0 if zero is None else zero.astype(jnp.float32))
    inside = (soft >= float(limits.min)) & (soft <= float(limits.max))
    return straight_through(hard, jnp.where(inside, soft, jax.lax.stop_gradient(soft)))


operator("StraightThroughDequantize")


@lowers("StraightThroughDequantize", domain=DOMAIN)
def straight_through_dequantize(
    x: Array, scale: Array, zero_point: Array | None = None, /, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Array:  # fmt: skip
    """(x - zero point) * scale, of integers or of integers stored as float32."""
    zero = None if zero_point is None else jnp.asarray(zero_point).astype(jnp.float32)
    data = jnp.asarray(x).astype(jnp.float32)
    return dequantize_linear(data, scale, zero, axis=axis, block_size=block_size, output_dtype=output_dtype)


operator("StraightThroughDynamicQuantize")


@lowers("StraightThroughDynamicQuantize", domain=DOMAIN)
def straight_through_dynamic_quantize(x: Array, /) -> tuple[Array, Array, Array]:
    """DynamicQuantizeLinear with float32 data; the scale follows the data and has no gradient."""
    whole, scale, zero = dynamic_quantize_linear(jax.lax.stop_gradient(jnp.asarray(x)))
    divisor = jnp.where(scale == 0, jnp.ones_like(scale), scale)
    return straight_through(whole.astype(jnp.float32), x / divisor + zero.astype(jnp.float32)), scale, zero
