"""Quantisation: QuantizeLinear and DequantizeLinear, and the operators on whole-number data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from ..errors import popart_exception
from .arrays import Array, device_dtype, is_float, normal_axis, onnx_dtype
from .cast import FLOAT8, HOST_ONLY, convert
from .convolution import conv
from .kernels import Computation
from .operator import MOVES_DATA, operator
from .registry import lowers
from .two_way import with_jvp

INTEGER_ARITHMETIC = {
    *("Abs", "Add", "Div", "Mod", "Mul", "Neg", "Sub", "Sum"),
    *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
}
"""Operators whose results of integers overflow, are cut or made of bits: floats of the same values give others."""


@with_jvp()
def straight_through(hard: Any, soft: Any) -> Any:
    """`hard`, with the derivative of `soft`."""
    return hard


@straight_through.defjvp
def _straight_through(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return primals[0], tangents[1]


def spread(parameter: Array, shape: Sequence[int], axis: int, block_size: int = 0) -> Array:
    """Scale or zero point, shaped to broadcast to the data: per tensor, per index of an axis, or per block along it."""
    if np.size(parameter) == 1 and np.ndim(parameter) <= 1:
        return parameter.reshape(())
    along = normal_axis(axis, len(shape))
    if not block_size:
        if parameter.ndim != 1 or parameter.shape[0] != shape[along]:
            raise popart_exception(f"parameter of shape {list(parameter.shape)} for axis {axis} of shape {list(shape)}")
        return parameter.reshape([-1 if i == along else 1 for i in range(len(shape))])
    if -(-shape[along] // block_size) != parameter.shape[along]:
        raise popart_exception(f"{parameter.shape[along]} blocks of {block_size} do not cover size {shape[along]}")
    repeated = jnp.repeat(_computable(parameter), block_size, axis=along)
    return lax.slice_in_dim(repeated, 0, shape[along], axis=along)


def _computable(x: Array) -> Array:
    """Narrow types converted to a type that XLA computes with."""
    if x.dtype in HOST_ONLY:
        return jnp.asarray(x.astype(np.float32))
    return jnp.asarray(x).astype(jnp.float32) if is_float(x) and x.dtype.itemsize == 1 else jnp.asarray(x)


def divided(x: Array, scale: Array) -> jax.Array:
    """x / scale; XLA would multiply by the reciprocal of a broadcast scalar, which rounds differently."""
    return jnp.asarray(x) / lax.optimization_barrier(jnp.broadcast_to(scale, x.shape))


def quantized(x: Array, scale: Array, zero: Array | None, dtype: np.dtype, saturate: bool = True) -> Array:
    """round(x / scale) + zero point, saturated to `dtype`; float types are not rounded to whole numbers."""
    scaled = divided(x, scale)
    if is_float(np.zeros(0, dtype)):
        scaled = scaled if zero is None else scaled + _computable(zero).astype(scaled.dtype)
        return convert(scaled, dtype, saturate)
    if dtype.itemsize <= 2:
        return in_range(scaled.astype(jnp.float32) if scaled.dtype.itemsize == 2 else scaled, zero, dtype)
    limits, wide = ml_dtypes.iinfo(dtype), device_dtype(np.int64)
    whole = jnp.nan_to_num(jnp.clip(jnp.rint(scaled), -(2.0**30), 2.0**30)).astype(wide)
    shifted = whole + (0 if zero is None else zero.astype(wide))
    return jnp.clip(shifted, int(limits.min), int(limits.max)).astype(dtype)


@lowers("QuantizeLinear", 10, takes="")
@lowers("QuantizeLinear", 13, takes="axis")
@lowers("QuantizeLinear", 19, takes="axis saturate")
@lowers("QuantizeLinear", 21, takes="axis block_size output_dtype saturate")
@lowers("QuantizeLinear", 23)
def quantize_linear(
    x: Array, scale: Array, zero: Array | None = None, /, *,
    axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Array:  # fmt: skip
    if zero is not None and output_dtype and onnx_dtype(output_dtype) != zero.dtype:
        raise popart_exception(
            f"QuantizeLinear: output_dtype {onnx_dtype(output_dtype)} and zero point type {zero.dtype} differ"
        )
    dtype = zero.dtype if zero is not None else onnx_dtype(output_dtype) if output_dtype else np.dtype(np.uint8)
    kind = onnx_dtype(precision) if precision else x.dtype if is_float(x) else scale.dtype
    divisor = spread(_computable(scale), x.shape, axis, block_size).astype(kind)
    shift = None if zero is None else spread(zero, x.shape, axis, block_size)
    return quantized(x.astype(kind), divisor, shift, np.dtype(dtype), bool(saturate))


@lowers("DequantizeLinear", 10, takes="")
@lowers("DequantizeLinear", 13, takes="axis")
@lowers("DequantizeLinear", 21, takes="axis block_size")
@lowers("DequantizeLinear", 23)
def dequantize_linear(
    x: Array, scale: Array, zero: Array | None = None, /, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Array:
    """(x - zero point) * scale; computed in float32."""
    factor = spread(_computable(scale), x.shape, axis, block_size).astype(jnp.float32)
    data = _computable(x)
    if zero is None:
        centred = data.astype(jnp.float32)
    elif is_float(data):
        centred = data - spread(_computable(zero), x.shape, axis, block_size)
    else:
        wide = jnp.int32
        centred = (data.astype(wide) - spread(zero, x.shape, axis, block_size).astype(wide)).astype(jnp.float32)
    kind = device_dtype(output_dtype) if output_dtype else scale.dtype
    return (centred * factor).astype(kind)


operator("DynamicQuantizeLinear", MOVES_DATA)


@lowers("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: Array, /) -> tuple[Array, Array, Array]:
    """UINT8 data with scale and zero point from the range of the data, 0 included."""
    low, high = jnp.min(x, initial=0), jnp.max(x, initial=0)
    scale = (high - low) / np.float32(255)
    divisor = jnp.where(scale == 0, jnp.ones_like(scale), scale)
    zero = jnp.clip(jnp.rint(-low / divisor), 0, 255).astype(jnp.uint8)
    return quantized(x, divisor, zero, np.dtype(np.uint8)), scale, zero


def centred(x: Array, zero: Array | None) -> Array:
    """Numbers less their zero point."""
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero.astype(np.int32)


LARGEST = 255
"""Magnitude of an 8-bit number less its zero point."""


@Computation
def integer_product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> jax.Array:
    """INT32 matrix product of 8-bit numbers less their zero points, which broadcast against them."""
    return jnp.matmul(centred(a, a_zero), centred(b, b_zero), preferred_element_type=jnp.int32)


@Computation
def integer_convolution(
    x: Array, w: Array, x_zero: Array | None, w_zero: Array | None, group: int, **attributes: Any
) -> Array:
    """INT32 convolution of 8-bit data and weights less their zero points; `attributes` are those of Conv."""
    return conv(jnp.asarray(centred(x, x_zero)), jnp.asarray(centred(w, w_zero)), group=group, **attributes)


@lowers("MatMulInteger", 10)
def matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None, /) -> Array:
    """INT32 products; zero points per tensor, per row of A or per column of B."""
    if a_zero is not None and a_zero.ndim == 1 and a_zero.size > 1:
        a_zero = a_zero[:, None]
    _check_zero_points(a_zero, b_zero)
    return integer_product(a, b, a_zero, b_zero)


def _check_zero_points(a: Array | None, b: Array | None) -> None:
    """Raise unless zero points have size 1 along the contracted axis: they are per row or per column."""
    if a is not None and a.ndim and a.shape[-1] != 1:
        raise popart_exception(f"The zero point of A has shape {list(a.shape)}; expected one number, or one a row.")
    if b is not None and b.ndim > 1 and b.shape[-2] != 1:
        raise popart_exception(f"The zero point of B has shape {list(b.shape)}; expected one number, or one a column.")


def _column(p: Array, rank: int) -> Array:
    return p.reshape(()) if np.size(p) == 1 else p if np.ndim(p) == rank else p.reshape((-1, 1))


@lowers("QLinearMatMul", 10)
def qlinear_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array, y_zero: Array, /
) -> Array:
    """Row-wise parameters of A, column-wise ones of B."""
    of_a, p = _column(a_scale, a.ndim), _column(a_zero, a.ndim)
    _check_zero_points(p, b_zero)
    if a.dtype in FLOAT8:
        product = jnp.matmul(dequantize_float(a, of_a, p), dequantize_float(b, b_scale, b_zero))
        scale = _column(y_scale, product.ndim).astype(product.dtype)
        return quantized(product, scale, _column(y_zero, product.ndim), np.dtype(y_zero.dtype))
    total = integer_product(a, b, p, b_zero).astype(jnp.float32)
    factor = of_a.astype(np.float32) * b_scale.astype(np.float32) / _column(y_scale, total.ndim).astype(np.float32)
    return in_range(total * factor, _column(y_zero, total.ndim), np.dtype(y_zero.dtype))


def dequantize_float(x: Array, scale: Array, zero: Array) -> Array:
    """Float data, float8 included, in float32."""
    if x.dtype in FLOAT8:
        return (_computable(x) - _computable(zero)) * scale.astype(jnp.float32)
    return (x.astype(jnp.int32) - zero.astype(jnp.int32)).astype(jnp.float32) * scale.astype(jnp.float32)


def _per_filter(p: Array, rank: int) -> Array:
    """Parameters of the filters against weights or, with `rank` of the output, against channels."""
    return p.reshape(()) if np.size(p) == 1 else p.reshape((-1, *(1,) * (rank - 1)))


operator("ConvInteger", ranks="x 3+ w =x x_zero_point 0-1 w_zero_point 0-1")


@lowers("ConvInteger", 10)
def conv_integer(
    x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, /, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1, kernel_shape: Sequence[int] = (),
    pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """INT32 convolution of data and weights less their zero points (padding is the zero point)."""
    return integer_convolution(
        x, w, x_zero, None if w_zero is None else _per_filter(w_zero, w.ndim), group,
        auto_pad=auto_pad, dilations=dilations, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip


operator("QLinearConv", ranks="x 3+ w =x w_scale 0-1 w_zero_point 0-1 B 1")


@lowers("QLinearConv", 10)
def qlinear_conv(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array, y_zero: Array,
    b: Array | None = None, /, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1, kernel_shape: Sequence[int] = (),
    pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """The bias is INT32 in units of x_scale * w_scale."""
    whole = integer_convolution(
        x, w, x_zero, _per_filter(w_zero, w.ndim), group,
        auto_pad=auto_pad, dilations=dilations, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return requantised(whole, (-1, *(1,) * (x.ndim - 2)), b, x_scale, w_scale, y_scale, y_zero)


def requantised(
    whole: Array, by_filter: tuple[int, ...], b: Array | None, x_scale: Array, w_scale: Array, y_scale: Array,
    y_zero: Array,
) -> Array:  # fmt: skip
    """Sums of products in the units of the result; per-filter parameters are reshaped to `by_filter`."""
    whole = whole if b is None else whole + b.reshape(by_filter)
    of_filters = w_scale.reshape(by_filter if np.size(w_scale) > 1 else ())
    factor = x_scale.reshape(()) * of_filters / y_scale.reshape(())
    return in_range(whole.astype(jnp.float32) * factor, y_zero.reshape(()), np.dtype(y_zero.dtype))


def in_range(x: Array, zero: Array | None, dtype: np.dtype) -> Array:
    """round(x) + zero point, saturated to a type of at most 16 bits; NaN counts as 0."""
    limits, shift = ml_dtypes.iinfo(dtype), np.float32(0) if zero is None else zero.astype(np.float32)
    whole = jnp.clip(jnp.rint(jnp.where(jnp.isnan(x), 0, x)), limits.min - shift, limits.max - shift)
    return (whole + shift).astype(jnp.int32).astype(dtype)
