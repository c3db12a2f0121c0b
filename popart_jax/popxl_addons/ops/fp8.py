"""Scales for conversion to float8, computed on the device."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import popxl
from ..._compat.jax import enable_x64
from ...ops.arrays import Array
from ...popxl import custom_ops, ops
from ...popxl import fp8_utils as host
from ...popxl.fp8_utils import CandidateConfig as CandidateConfig
from ...popxl.ops.utils import cast_if_needed

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
    """Format of a float8 dtype; RuntimeError for other types."""
    if dtype == popxl.float8_143:
        return float8_143_def
    if dtype == popxl.float8_152:
        return float8_152_def
    raise RuntimeError(f"dtype {dtype} not currently supported.")


def _check_source(src: popxl.Tensor) -> None:
    if src.dtype not in (popxl.float16, popxl.float32):
        raise RuntimeError(f"dtype {src.dtype} not currently supported.")


def fp8_amax_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """floor(log2(largest float8 / largest |src|)), within -31..31, as an int32 scalar."""
    _check_source(src)
    limit = format_of(dtype).max_value
    amax = cast_if_needed(ops.max(ops.abs(src)), popxl.float32)  # the ratio may be too large for float16
    ratio = popxl.constant(limit, popxl.float32) / amax
    exponent = ops.log(ratio) / ops.log(popxl.constant(2.0, popxl.float32))
    whole = ops.cast(ops.floor(exponent), popxl.int32)
    return ops.clip(whole, -LARGEST_SCALE, LARGEST_SCALE)


@lru_cache
def _error_weights(dtype_name: str, half: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Weights and extra errors of `host.error_weights`, and the exponent of the first limit."""
    source, target = host.ieee_fp32_no_denorms, host._DEFS[getattr(popxl, dtype_name)]
    _, limits = host.log_histogram(np.zeros(1), source)
    candidate = CandidateConfig(target, source, target, np.float16 if half else np.float32)
    weights, extra = host.error_weights(limits, host.starting_indices(limits, candidate), candidate)
    return weights, extra, host.find_exponential_range(source)[0]


def _mse_scale(x: Array, /, *, dtype_name: str) -> jax.Array:
    """The scale with the least estimated error, from a histogram of exponents as on the host.

    Errors are added in float64 in the host's order: equal ones decide which scale is taken.
    """
    weights, extra, low = _error_weights(dtype_name, x.dtype == jnp.float16)
    magnitude = jnp.abs(x.astype(jnp.float32)).reshape(-1)
    exponents = jnp.where(magnitude > 0, jnp.frexp(magnitude)[1] - 1, low - 1)
    bins = weights.shape[1] + 1
    counts = jnp.zeros(bins, jnp.int32).at[jnp.clip(exponents - (low - 1), 0, bins - 1)].add(1)
    with enable_x64():
        shares = counts.astype(jnp.float64) / x.size
        terms = jnp.asarray(weights.T) * shares[1:, None]
        errors = jax.lax.scan(lambda total, term: (total + term, None), jnp.asarray(extra), terms)[0]
        best = errors == errors.min()
    ranks = jnp.cumsum(best.astype(jnp.int32)) - 1
    return -(jnp.argmax(best & (ranks == (ranks[-1] + 1) // 2)).astype(jnp.int32) + min_scaling_bias)


_FP8_SCALE = custom_ops.define("Fp8Scale", _mse_scale, names=("fp8_mse_scale_out",))


def fp8_mse_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """The scale with least estimated error, an int32 scalar within -31..31; the same as `host_fp8_mse_scale`'s."""
    _check_source(src)
    format_of(dtype)
    flat = ops.reshape(src, (math.prod(src.shape),))
    return _FP8_SCALE.single(flat, dtype_name=dtype.name)
