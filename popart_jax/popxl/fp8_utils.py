"""Float8 on the host: casts with a power-of-two scale, and the scale with least error.

``float8_143`` is ML's e4m3fnuz (bias 8, largest 240), ``float8_152`` its e5m2fnuz (bias 16, largest 57344); both have
one NaN (0x80) and no infinities.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import dtypes

torch_imported = "torch" in sys.modules
max_scaling_bias = 31
min_scaling_bias = -31


class FpDef(NamedTuple):
    """A floating point format."""

    num_exp_bits: int
    num_mantissa_bits: int
    fix_exponent_bias: int
    include_denorm: bool
    has_nans: bool


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
        Too large values become NaN; otherwise the largest number with their sign. Infinities become NaN either way.

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
    with np.errstate(all="ignore"):  # NaN and overflow are results here
        scaled = np.ldexp(src.astype(np.float64), log2_scale)
        if not nan_on_overflow:
            scaled = np.where(np.isinf(src), np.nan, np.clip(scaled, -_LARGEST[dtype], _LARGEST[dtype]))
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
    with np.errstate(all="ignore"):
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


def log_histogram(src: np.ndarray, ftype: FpDef) -> tuple[np.ndarray, np.ndarray]:
    """Share of the values per power of two, and these powers: those within a format's range without its largest.

    Shares are those below the first, from each to the next, and from the last on.
    """
    low, high = find_exponential_range(ftype)
    magnitude = np.abs(np.asarray(src, np.float64).ravel())
    exponents = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, low - 1)
    places = np.clip(exponents, low - 1, high - 1) - (low - 1)
    counts = np.bincount(places, minlength=high - low + 1)
    return counts / max(1, magnitude.size), np.ldexp(1.0, np.arange(low, high))


def error_weights(
    limits: np.ndarray, src_bias_starting_indices: np.ndarray, candidate: CandidateConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the histogram's shares in the estimated error of each candidate, and an error beside them.

    Values below the range of a candidate are lost, those within it lose the bits that its mantissa lacks, those above
    lose the excess over a power of two that depends on the candidate's position.

    Returns
    -------
    weights : (candidates, limits), extra : (candidates,)
    """
    low, high = find_exponential_range(candidate.format)
    span = high - low + 1
    mantissa = 10 if candidate.src_type == np.float16 else 23
    lost = 2.0 ** (-2 * (mantissa - candidate.format.num_mantissa_bits))
    place, start = np.arange(limits.size)[None], np.asarray(src_bias_starting_indices)[:, None]
    top = limits[np.minimum(np.arange(len(start)) + span - 1, limits.size - 1)][:, None]
    square = limits[None] ** 2
    weights = np.where(place < start, square, np.where(place < start + span, square * lost, (top - limits[None]) ** 2))
    return weights, np.where(start[:, 0] > 0, (limits[0] / 2) ** 2, 0.0)


def calculate_metric_mse(
    histogram: np.ndarray, limits: np.ndarray, src_bias_starting_indices: Any, candidate: CandidateConfig
) -> np.ndarray:
    """Estimated squared error for each candidate, from a histogram of powers of two."""
    weights, extra = error_weights(limits, src_bias_starting_indices, candidate)
    terms = np.concatenate([extra[:, None], weights * histogram[None, 1 : limits.size + 1]], axis=1)
    return np.cumsum(terms, axis=1)[:, -1]  # one after the other: candidates tie only if they round alike


def starting_indices(limits: np.ndarray, candidate: CandidateConfig) -> np.ndarray:
    """Position of the smallest number of a format among the limits, for each scale from 31 down to -31."""
    low, _ = find_exponential_range(candidate.format)
    first = -int(np.log2(limits[0]))
    return np.arange(max(0, low + min_scaling_bias + first), min(low + max_scaling_bias + first, limits.size) + 1)


def calculate_candidate_metric(
    hist_norm: np.ndarray, limits: np.ndarray, candidate: CandidateConfig, metric_type: str | None = None
) -> tuple[float, int]:
    """Smallest estimated error over all scales, and the bias (the negated scale) that attains it.

    Of several biases with the same error the middle one is taken.

    Raises
    ------
    RuntimeError
        Another metric than "MSE".
    """
    if metric_type != "MSE":
        raise RuntimeError("Only MSE metric is supported.")
    errors = calculate_metric_mse(hist_norm, limits, starting_indices(limits, candidate), candidate)
    best = np.flatnonzero(errors == errors.min())
    return float(errors.min()), int(best[len(best) // 2]) + min_scaling_bias


def host_fp8_mse_scale(src: np.ndarray, dtype: dtypes.dtype | None = None) -> tuple[float, int]:
    """(estimated error, scale) of the power-of-two scale between -31 and 31 with least error in float8.

    Parameters
    ----------
    dtype : float8_143 or float8_152, optional
        Default float8_143.

    Raises
    ------
    RuntimeError
        The target is no float8 type, or the data are not float16 or float32.
    """
    src = np.asarray(dtypes.untorched(src))
    dtype = dtypes.float8_143 if dtype is None else dtype
    if src.dtype not in (np.float16, np.float32):
        raise RuntimeError(f"dtype {src.dtype} not currently supported.")
    if dtype not in _DEFS:
        raise RuntimeError(f"dtype {dtype} not currently supported.")
    histogram, limits = log_histogram(src, ieee_fp32_no_denorms)
    candidate = CandidateConfig(_DEFS[dtype], ieee_fp32_no_denorms, _DEFS[dtype], src.dtype)
    metric, bias = calculate_candidate_metric(histogram, limits, candidate, "MSE")
    return metric, -bias


def host_fp8_mse_scale_pb(src: np.ndarray, dtype: dtypes.dtype | None = None) -> int:
    """The scale of `host_fp8_mse_scale` alone.

    Raises
    ------
    RuntimeError
        No float8 type is named.
    """
    if dtype not in _DEFS:
        raise RuntimeError(f"dtype {dtype} not currently supported.")
    return host_fp8_mse_scale(src, dtype)[1]
