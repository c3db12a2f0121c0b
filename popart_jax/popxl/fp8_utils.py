"""Float8 on the host: casts with a power-of-two scale, and the scale that loses least.

``float8_143`` is ML's e4m3fnuz (bias 8, largest 240), ``float8_152`` its e5m2fnuz (bias 16, largest 57344); both have
one NaN (0x80) and no infinities.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np

from . import dtypes

torch_imported = "torch" in sys.modules
max_scaling_bias = 31
min_scaling_bias = -31

FpDef = namedtuple("FpDef", ["num_exp_bits", "num_mantissa_bits", "fix_exponent_bias", "include_denorm", "has_nans"])
ieee_fp32_no_denorms = FpDef(8, 23, 127, False, True)
ieee_fp16_denorms = FpDef(5, 10, 15, True, True)
float8_152_def = FpDef(5, 2, 16, True, False)
float8_143_def = FpDef(4, 3, 8, True, False)

_MINIFLOAT = {dtypes.float8_143: ml_dtypes.float8_e4m3fnuz, dtypes.float8_152: ml_dtypes.float8_e5m2fnuz}
_LARGEST = {dtypes.float8_143: 240.0, dtypes.float8_152: 57344.0}
_DEFS = {dtypes.float8_143: float8_143_def, dtypes.float8_152: float8_152_def}
_WIDE = (np.float16, np.float32, np.float64)


class CandidateConfig:
    """A float8 format as a candidate for data of another type."""

    def __init__(self, format: FpDef, src_ftype: FpDef, dest_ftype: FpDef, src_type: Any) -> None:
        self.format, self.src_ftype, self.dest_ftype, self.src_type = format, src_ftype, dest_ftype, src_type


def host_pow2scale_cast_to_fp8(
    src: np.ndarray, dtype: dtypes.dtype | None = None, log2_scale: int = 0, nan_on_overflow: bool = True
) -> np.ndarray:
    """cast(src * 2**log2_scale) to float8.

    Parameters
    ----------
    src : ndarray of float16, float32 or float64
        Values.
    dtype : float8_143 or float8_152
        Target.
    nan_on_overflow : bool
        Too large values become NaN; otherwise the largest number with their sign.

    Returns
    -------
    ndarray
        Structured array of the target type.

    Raises
    ------
    RuntimeError
        Other types.
    """
    src = np.asarray(dtypes.untorched(src))
    if dtype not in _MINIFLOAT or src.dtype not in _WIDE:
        raise RuntimeError(f"Can't cast {src.dtype} to {dtype}: float16/32/64 can be cast to a float8 type.")
    scaled = np.ldexp(src.astype(np.float64), log2_scale)
    if not nan_on_overflow:
        scaled = np.clip(scaled, -_LARGEST[dtype], _LARGEST[dtype])
    with np.errstate(all="ignore"):
        small = scaled.astype(_MINIFLOAT[dtype])
    return small.view(np.uint8).view(dtype.as_numpy())


def host_pow2scale_cast_from_fp8(src: np.ndarray, dtype: dtypes.dtype | None = None, log2_scale: int = 0) -> np.ndarray:
    """Values of a float8 array times 2**log2_scale, as float16, float32 or float64.

    Raises
    ------
    RuntimeError
        Other types.
    """
    source = dtypes._NP_TO_POPXL.get(src.dtype)
    if source not in _MINIFLOAT or dtype is None or dtype.as_numpy() not in _WIDE:
        raise RuntimeError(f"Can't cast {src.dtype} to {dtype}: a float8 type can be cast to float16/32/64.")
    wide = np.ascontiguousarray(src).view(np.uint8).reshape(src.shape).view(_MINIFLOAT[source]).astype(np.float64)
    return np.ldexp(wide, log2_scale).astype(dtype.as_numpy())


def find_exponential_range(fp_def: FpDef) -> tuple[int, int]:
    """Smallest and largest power of two that a format can tell apart from its neighbours."""
    lowest = 1 - fp_def.fix_exponent_bias
    if fp_def.include_denorm:
        lowest -= fp_def.num_mantissa_bits
    top = 2**fp_def.num_exp_bits - 1 - fp_def.fix_exponent_bias
    if fp_def.has_nans:
        top -= 1
    return lowest, top


def log_histogram(src: np.ndarray, ftype: FpDef) -> tuple[np.ndarray, tuple[int, int]]:
    """Number of values per exponent within a format's range, and that range; zeros count as the smallest."""
    low, high = find_exponential_range(ftype)
    magnitude = np.abs(np.asarray(src, np.float64).ravel())
    with np.errstate(divide="ignore"):
        exponents = np.where(magnitude > 0, np.floor(np.log2(np.where(magnitude > 0, magnitude, 1.0))), low)
    clipped = np.clip(exponents, low, high).astype(np.int64)
    return np.bincount(clipped - low, minlength=high - low + 1), (low, high)


def calculate_metric_mse(
    histogram: np.ndarray, limits: tuple[int, int], src_bias_starting_indices: Any, candidate: CandidateConfig
) -> np.ndarray:
    """Estimated squared error for each scale from the smallest to the largest, from a histogram of exponents.

    Values of exponent e lose half a unit in the last place, those below the format's range lose themselves, those above
    lose what exceeds the largest number.
    """
    low, high = find_exponential_range(candidate.format)
    normal_low = low + candidate.format.num_mantissa_bits if candidate.format.include_denorm else low
    exponents = np.arange(limits[0], limits[1] + 1, dtype=np.float64)
    middle = 1.5 * 2.0**exponents
    errors = []
    for bias in src_bias_starting_indices:
        at = exponents + bias
        unit = 2.0 ** (np.maximum(at, normal_low) - candidate.format.num_mantissa_bits - bias)
        largest = (2.0 - 2.0**-candidate.format.num_mantissa_bits) * 2.0 ** (high - bias)
        error = np.where(at > high, (middle - largest) ** 2, np.where(at < low, middle**2, unit**2 / 12.0))
        errors.append(float(np.sum(histogram * error)))
    return np.asarray(errors)


def calculate_candidate_metric(
    hist_norm: np.ndarray, limits: tuple[int, int], candidate: CandidateConfig, metric_type: str | None = None
) -> tuple[float, int]:
    """Smallest estimated error over all scales, and the scale that attains it."""
    if metric_type not in (None, "mse"):
        raise RuntimeError(f"Unknown metric {metric_type!r}: only 'mse' exists.")
    scales = np.arange(min_scaling_bias, max_scaling_bias + 1)
    errors = calculate_metric_mse(hist_norm, limits, scales, candidate)
    best = int(np.argmin(errors))
    return float(errors[best]), int(scales[best])


def host_fp8_mse_scale(src: np.ndarray, dtype: dtypes.dtype | None = None) -> tuple[float, int]:
    """(estimated error, scale) of the power-of-two scale between -31 and 31 that loses least in float8.

    Raises
    ------
    RuntimeError
        The target is no float8 type, or the data are not floating point.
    """
    src = np.asarray(dtypes.untorched(src))
    if dtype not in _DEFS or src.dtype not in _WIDE:
        raise RuntimeError(f"No scale for {src.dtype} to {dtype}: float16/32/64 can be scaled to a float8 type.")
    source = ieee_fp16_denorms if src.dtype == np.float16 else ieee_fp32_no_denorms
    counts, limits = log_histogram(src, source)
    candidate = CandidateConfig(_DEFS[dtype], source, _DEFS[dtype], src.dtype)
    return calculate_candidate_metric(counts / max(1, counts.sum()), limits, candidate, "mse")


def host_fp8_mse_scale_pb(src: np.ndarray, dtype: dtypes.dtype | None = None) -> int:
    """The scale of `host_fp8_mse_scale` alone."""
    return host_fp8_mse_scale(src, dtype)[1]
