"""Scales for conversion to float8, computed on the device."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from ... import popxl
from ...popxl import custom_ops, ops
from .simple import DOMAIN

LARGEST_SCALE = max_scaling_bias = 31
min_scaling_bias = -31


class FpDef(NamedTuple):
    """A floating point format."""

    num_exp_bits: int
    num_mantissa_bits: int
    fix_exponent_bias: int
    include_denorm: bool
    has_nans: bool
    max_value: float
    max_exp: int
    min_exp: int


ieee_fp32_no_denorms = FpDef(8, 23, 127, False, True, 3.4028235e38, 127, -126)
ieee_fp16_denorms = FpDef(5, 10, 15, True, True, 65504, 15, -14)
float8_152_def = FpDef(5, 2, 16, True, False, 57344, 15, -17)
float8_143_def = FpDef(4, 3, 8, True, False, 240, 7, -10)


def format_of(dtype: popxl.dtype) -> FpDef:
    """Format of a float8 dtype.

    Raises
    ------
    RuntimeError
        Another dtype.
    """
    if dtype == popxl.float8_143:
        return float8_143_def
    if dtype == popxl.float8_152:
        return float8_152_def
    raise RuntimeError(f"expected float8_143 or float8_152, got {dtype}")


def _check_source(src: popxl.Tensor) -> None:
    if src.dtype not in (popxl.float16, popxl.float32):
        raise RuntimeError(f"expected a float16 or float32 tensor, got {src.dtype}")


def fp8_amax_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """floor(log2(largest float8 / largest |src|)), within -31..31, as an int32 scalar."""
    _check_source(src)
    limit = format_of(dtype).max_value
    amax = ops.max(ops.abs(src))
    ratio = popxl.constant(limit, src.dtype) / amax
    exponent = ops.log(ratio) / ops.log(popxl.constant(2.0, src.dtype))
    whole = ops.cast(ops.floor(exponent), popxl.int32)
    return ops.clip(whole, -LARGEST_SCALE, LARGEST_SCALE)


def _mse_scale(x, /, *, mantissa_bits, max_value, min_exp):
    """The scale whose float8 rounding has the least mean squared error."""
    scales = jnp.arange(-LARGEST_SCALE, LARGEST_SCALE + 1)
    x = x.astype(jnp.float32).reshape(-1)

    def error(scale):
        scaled = jnp.ldexp(x, scale)
        exponent = jnp.maximum(jnp.frexp(scaled)[1] - 1, min_exp + mantissa_bits)
        step = jnp.ldexp(jnp.ones_like(scaled), exponent - mantissa_bits)
        rounded = jnp.clip(jnp.round(scaled / step) * step, -max_value, max_value)
        return jnp.mean(jnp.square(jnp.ldexp(rounded - scaled, -scale)))

    errors = jnp.stack([error(s) for s in scales])
    return scales[jnp.argmin(jnp.where(jnp.isfinite(errors), errors, jnp.inf))].astype(jnp.int32)


_FP8_SCALE = custom_ops.define("Fp8Scale", _mse_scale, domain=DOMAIN, names=("fp8_mse_scale_out",))


def fp8_mse_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """The scale, an int32 scalar within -31..31, that makes the mean squared error of float8 rounding least."""
    _check_source(src)
    kind = format_of(dtype)
    flat = ops.reshape(src, (math.prod(src.shape),))
    return _FP8_SCALE.single(flat, mantissa_bits=kind.num_mantissa_bits, max_value=kind.max_value, min_exp=kind.min_exp)
