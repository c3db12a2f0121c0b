"""Conversions between types, the 8-, 6-, 4- and 2-bit ones and texts included."""

from __future__ import annotations

import typing
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx_ir as ir
from jax import lax

from .._compat.jax import Tracer
from ..errors import popart_exception
from .arrays import Array, device_dtype, is_float, is_text, namespace, onnx_dtype, times_power_of_two
from .kernels import IPU, platform
from .later import LATER
from .operator import ELEMENTWISE, FOLDS, MOVES_DATA, MOVES_ROWS, ROUNDS, WIDE_RESULT, as_onnx, operator
from .registry import lowers

FLOAT8 = tuple(map(np.dtype, (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
                              ml_dtypes.float8_e5m2fnuz)))  # fmt: skip
HOST_ONLY = tuple(map(np.dtype, (ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)))
"""Types of ONNX that XLA lacks: they stay NumPy arrays; while tracing, their values are represented as float8e4m3fn."""

E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_TEXT = 8


def to_text(x: Array) -> Any:
    """Elements as Python strings, in ONNX's notation of floats."""
    return LATER if isinstance(x, Tracer) else np.asarray(x).astype(np.str_).astype(object)


def from_text(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Parsed elements; +INF, NaN and exponents as in C."""
    if dtype == np.bool_:
        return np.asarray([bool(int(t)) for t in x.reshape(-1)], bool).reshape(x.shape)
    wide = dtype if dtype.kind in "iu" else np.dtype(np.float64)
    return x.astype(np.str_).astype(wide).astype(dtype)


def _power_of_two(x: Array, saturate: bool, round_mode: str) -> Array:
    """float8e8m0 holds only an exponent: the mantissa rounds it up, down or to nearest (a tie goes up)."""
    bits = lax.bitcast_convert_type(jnp.asarray(x, jnp.float32), jnp.uint32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    half = np.uint32(0x400000)
    match round_mode:
        case "up":
            more = fraction > 0
        case "down":
            more = jnp.zeros_like(fraction, bool)
        case "nearest":
            more = (fraction > half) | ((fraction == half) & (exponent > 0))
        case _:
            raise ValueError(f"round_mode must be up, down or nearest, got {round_mode!r}")
    more &= exponent < (0xFE if saturate else 0xFF)
    return lax.bitcast_convert_type((exponent + more).astype(jnp.uint8), jnp.dtype(E8M0))


def _truncated(x: Array, dtype: np.dtype) -> Array:
    """Floats to whole numbers, toward zero.

    Out-of-range values keep their lowest bits, as in NumPy, PyTorch and ONNX Runtime; ONNX leaves it undefined.
    """
    whole = jnp.trunc(x.astype(jnp.float32) if x.dtype.itemsize == 1 else x)
    if dtype.itemsize < 4:
        return whole.astype(jnp.int32).astype(device_dtype(dtype))
    found = whole.astype(device_dtype(dtype))
    if dtype.kind != "u":
        return found
    signed = device_dtype(np.dtype(f"i{dtype.itemsize}"))
    return jnp.where(whole < 0, whole.astype(signed).astype(found.dtype), found)


def _info(dtype: Any) -> Any:
    return typing.cast("Any", ml_dtypes.finfo(dtype))


def _six_bits(x: Array, dtype: np.dtype) -> Array:
    """Round to a 6-bit type, represented as float8e4m3fn: ties to even, saturated, NaN as in ml_dtypes."""
    wide, largest = x.astype(jnp.float32), float(_info(dtype).max)
    kept = jnp.clip(_on_grid(wide, dtype), -largest, largest)
    return jnp.where(jnp.isnan(wide), -0.0, kept).astype(ml_dtypes.float8_e4m3fn)


def _on_grid(wide: Array, dtype: np.dtype) -> Array:
    """Float32 numbers rounded to the digits of a narrower float type, ties to even; out of its range they stay."""
    info = _info(dtype)
    _, exponent = jnp.frexp(jnp.abs(wide))
    lowest = jnp.maximum(exponent - 1, int(info.minexp)) - int(info.nmant)
    return jnp.where(jnp.isfinite(wide), times_power_of_two(jnp.rint(times_power_of_two(wide, -lowest)), lowest), wide)


def to_float8(x: Array, dtype: Any) -> Array:
    """Floats to an 8-bit type, out of range as XLA does.

    For GPUs XLA leaves out a conversion and the one back, since it may compute with more digits than are asked for. So
    numbers are rounded beforehand there.
    """
    if platform() in ("cpu", IPU):
        return x.astype(dtype)
    wide = x.astype(jnp.float32)
    return jnp.where(jnp.abs(wide) <= float(_info(dtype).max), _on_grid(wide, dtype), wide).astype(dtype)


def from_float8(x: Array) -> Array:
    """Float8 as float32. For GPUs XLA would make products of 8 bits of it, also of types that the library lacks."""
    wide = x.astype(jnp.float32)
    return wide if platform() in ("cpu", IPU) else lax.optimization_barrier(wide)


def convert(x: Any, dtype: np.dtype, saturate: bool = True, round_mode: str = "up") -> Any:
    """Numbers to another type; 8-bit floats saturate (infinities too) unless told otherwise."""
    if dtype in HOST_ONLY and isinstance(x, Tracer):
        return _six_bits(x, dtype)
    if dtype in HOST_ONLY or x.dtype in HOST_ONLY:
        return np.asarray(x).astype(dtype)
    if dtype == E8M0:
        return _power_of_two(x, saturate, round_mode)
    if dtype == np.bool_:
        return x != np.zeros((), x.dtype)
    if dtype in FLOAT8 and saturate:
        limit = np.asarray(ml_dtypes.finfo(dtype).max, np.float32)
        source = x if x.dtype in (np.float32, np.float64) else x.astype(jnp.float32)
        x = jnp.clip(source, -limit.astype(source.dtype), limit.astype(source.dtype))
    if isinstance(x, np.ndarray) and namespace(x) is np and dtype not in FLOAT8:
        with np.errstate(invalid="ignore", over="ignore"):  # ONNX leaves out-of-range values undefined
            return typing.cast("np.ndarray", x).astype(dtype)
    if is_float(x) and jnp.issubdtype(dtype, jnp.integer):
        return _truncated(typing.cast("Array", x), dtype)
    if dtype in FLOAT8 and is_float(x):
        return to_float8(jnp.asarray(x), dtype)
    return jnp.asarray(x).astype(device_dtype(dtype))


operator(
    "Cast",
    ELEMENTWISE | MOVES_DATA | FOLDS | ROUNDS | WIDE_RESULT | MOVES_ROWS,
    gradients="g",
    popxl=as_onnx(9, runs=9),
)


@lowers("Cast", 6, takes="to")
@lowers("Cast", 19, takes="to saturate")
@lowers("Cast", 24)
def cast(x: Any, /, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    if to == _TEXT:
        return to_text(x)
    dtype = onnx_dtype(to)
    return from_text(x, dtype) if is_text(x) else convert(x, dtype, bool(saturate), round_mode)


@lowers("Cast", 1)
def cast_1(x: Any, /, *, to: str) -> Any:
    """The oldest version names the type."""
    if to.upper() not in ir.DataType.__members__:
        raise popart_exception(f"Cast: unknown type name {to!r}")
    return cast(x, to=ir.DataType[to.upper()].value)


operator("CastLike", MOVES_DATA)


@lowers("CastLike", 15, takes="")
@lowers("CastLike", 19, takes="saturate")
@lowers("CastLike", 24)
def cast_like(x: Any, target: Any, /, *, saturate: int = 1, round_mode: str = "up") -> Any:
    if is_text(target):
        return to_text(x)
    dtype = np.dtype(target.dtype)
    return from_text(x, dtype) if is_text(x) else convert(x, dtype, bool(saturate), round_mode)


@lowers("BitCast", 26)
def bit_cast(x: Array, /, *, to: int) -> Array:
    """The bits of x reinterpreted as another type of the same width."""
    dtype = onnx_dtype(to)
    if is_text(x) or x.dtype.itemsize != dtype.itemsize:
        raise popart_exception(f"BitCast from {x.dtype} to {dtype}: both must have the same number of bits")
    if np.bool_ in (x.dtype, dtype):
        x = x.astype(jnp.uint8) if x.dtype == np.bool_ else lax.bitcast_convert_type(x, jnp.uint8)
        return x != 0 if dtype == np.bool_ else lax.bitcast_convert_type(x, dtype)
    return lax.bitcast_convert_type(jax.numpy.asarray(x), device_dtype(dtype))
