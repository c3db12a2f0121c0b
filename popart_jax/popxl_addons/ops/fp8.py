"""Scales for conversion to float8, computed on the device."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import popxl
from ...popxl import custom_ops, ops
from ...popxl import fp8_utils as host
from ...popxl.fp8_utils import CandidateConfig as CandidateConfig
from ...popxl.ops.utils import cast_if_needed
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
    amax = cast_if_needed(ops.max(ops.abs(src)), popxl.float32)  # the ratio may be too large for float16
    ratio = popxl.constant(limit, popxl.float32) / amax
    exponent = ops.log(ratio) / ops.log(popxl.constant(2.0, popxl.float32))
    whole = ops.cast(ops.floor(exponent), popxl.int32)
    return ops.clip(whole, -LARGEST_SCALE, LARGEST_SCALE)


_CHUNK = 12  # bits of a factor whose products with another are exact in float32
_CHUNKS = -(-53 // _CHUNK)


@lru_cache
def _error_table(dtype_name: str, half: bool) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Estimated errors by scale and exponent of the data, as float32 chunks of their mantissas and their exponents.

    Returns
    -------
    chunks : (chunks, scales, exponents), exponents : (scales, exponents), (lowest, highest) exponent
    """
    source = host.ieee_fp16_denorms if half else host.ieee_fp32_no_denorms
    target = host.float8_143_def if dtype_name == "float8_143" else host.float8_152_def
    limits = host.find_exponential_range(source)
    candidate = CandidateConfig(target, source, target, np.float16 if half else np.float32)
    ones = np.eye(limits[1] - limits[0] + 1)
    scales = np.arange(min_scaling_bias, max_scaling_bias + 1)
    errors = np.stack([host.calculate_metric_mse(one, limits, scales, candidate) for one in ones], axis=1)
    mantissas, exponents = np.frexp(errors)
    chunks = []
    for i in range(1, _CHUNKS + 1):
        part = np.trunc(np.ldexp(mantissas, _CHUNK * i))
        chunks.append(np.ldexp(part, -_CHUNK * i))
        mantissas = mantissas - chunks[-1]
    return np.stack(chunks).astype(np.float32), exponents.astype(np.int32), limits


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b, and what rounding took from it."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def _add(total: tuple[Any, Any, Any], term: Any) -> tuple[Any, Any, Any]:
    """A sum kept as three float32 of falling size."""
    high, lost = _two_sum(total[0], term)
    middle, lost = _two_sum(total[1], lost)
    return high, middle, total[2] + lost


def _mse_scale(x, /, *, dtype_name):
    """The scale with the least estimated error, from a histogram of exponents as on the host.

    Scales that differ only in what they do to the smallest values are apart by as little as float64 shows, so the sums
    carry their rounding errors along.
    """
    half = x.dtype == jnp.float16
    chunks, exponents, (low, high) = _error_table(dtype_name, half)
    magnitude = jnp.abs(x.astype(jnp.float32)).reshape(-1)
    found = jnp.where(magnitude > 0, jnp.frexp(magnitude)[1] - 1, low)
    found = jnp.clip(found, low, high)
    counts = jnp.zeros(high - low + 1, jnp.int32).at[found - low].add(1)
    relative = jnp.clip(jnp.asarray(exponents) - 2 * found.max() - 2, -120, 8)  # beyond the largest there is nothing
    shifts = range(0, max(1, x.size.bit_length()), _CHUNK)
    parts = [(counts >> shift & (1 << _CHUNK) - 1).astype(jnp.float32) * 2.0**shift for shift in shifts]

    def add_exponent(i, total):
        for chunk in chunks:
            scaled = jnp.ldexp(jnp.asarray(chunk)[:, i], relative[:, i])
            for part in parts:
                total = _add(total, scaled * part[i])
        return total

    zeros = jnp.zeros(chunks.shape[1], jnp.float32)
    high, middle, low_part = jax.lax.fori_loop(0, counts.size, add_exponent, (zeros, zeros, zeros))
    high, middle = _two_sum(high, middle)
    near = jnp.argmin(high)
    apart, lost = _two_sum(middle, -middle[near])
    above = ((high - high[near]) + apart) + (lost + (low_part - low_part[near]))
    best = jnp.argmax(above - above.min() <= 2.0**-54 * high[near])  # the first that float64 can't tell from the least
    return (best + min_scaling_bias).astype(jnp.int32)


_FP8_SCALE = custom_ops.define("Fp8Scale", _mse_scale, domain=DOMAIN, names=("fp8_mse_scale_out",))


def fp8_mse_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """The scale, an int32 scalar within -31..31, whose estimated error is least; as `host_fp8_mse_scale` finds it."""
    _check_source(src)
    format_of(dtype)
    flat = ops.reshape(src, (math.prod(src.shape),))
    return _FP8_SCALE.single(flat, dtype_name=dtype.name)
