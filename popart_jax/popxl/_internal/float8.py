"""PopART's float8 functions for NumPy arrays: conversion to and from flat bytes, and the scale with least error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...enums import DataType
from ...errors import popart_exception
from .. import dtypes
from ..fp8_utils import host_fp8_mse_scale, host_pow2scale_cast_from_fp8, host_pow2scale_cast_to_fp8

_TYPES = {DataType.FLOAT8_143: dtypes.float8_143, DataType.FLOAT8_152: dtypes.float8_152}


def _float8(kind: DataType) -> dtypes.dtype:
    if kind not in _TYPES:
        raise popart_exception(f"{kind} is no float8 type; there are FLOAT8_143 and FLOAT8_152")
    return _TYPES[kind]


def _to_bytes(destType: DataType, src: Any, log2Scale: int, throwOnOverflow: bool) -> np.ndarray:
    small = host_pow2scale_cast_to_fp8(np.asarray(src).reshape(-1), _float8(destType), log2Scale, throwOnOverflow)
    return np.ascontiguousarray(small).view(np.uint8)


def convertFromFloat16ToFloat8AsUInt8(
    destType: DataType, src: np.ndarray, log2Scale: int, throwOnOverflow: bool
) -> np.ndarray:
    """Bytes of ``src * 2**log2Scale`` in a float8 type, flat; values beyond it are NaN or its largest."""
    return _to_bytes(destType, np.asarray(src, np.float16), log2Scale, throwOnOverflow)


def convertFromFloat32ToFloat8AsUInt8(
    destType: DataType, src: np.ndarray, log2Scale: int, throwOnOverflow: bool
) -> np.ndarray:
    """As `convertFromFloat16ToFloat8AsUInt8`, of float32."""
    return _to_bytes(destType, np.asarray(src, np.float32), log2Scale, throwOnOverflow)


def convertFromFloat64ToFloat8AsUInt8(
    destType: DataType, src: np.ndarray, log2Scale: int, throwOnOverflow: bool
) -> np.ndarray:
    """As `convertFromFloat16ToFloat8AsUInt8`, of float64."""
    return _to_bytes(destType, np.asarray(src, np.float64), log2Scale, throwOnOverflow)


def _from_bytes(srcType: DataType, src: Any, kind: dtypes.dtype, log2Scale: int) -> np.ndarray:
    small = np.ascontiguousarray(src, np.uint8).reshape(-1).view(_float8(srcType).as_numpy())
    return host_pow2scale_cast_from_fp8(small, kind, log2Scale)


def convertFromFloat8AsUInt8ToFloat16(
    srcType: DataType, src: np.ndarray, destType: np.dtype, log2Scale: int = 0
) -> np.ndarray:
    """Float16 values of float8 bytes, times ``2**log2Scale``, flat."""
    return _from_bytes(srcType, src, dtypes.float16, log2Scale).astype(destType, copy=False)


def convertFromFloat8AsUInt8ToFloat32(
    srcType: DataType, src: np.ndarray, destType: np.dtype, log2Scale: int = 0
) -> np.ndarray:
    """As `convertFromFloat8AsUInt8ToFloat16`, in float32."""
    return _from_bytes(srcType, src, dtypes.float32, log2Scale).astype(destType, copy=False)


def convertFromFloat8AsUInt8ToFloat64(
    srcType: DataType, src: np.ndarray, destType: np.dtype, log2Scale: int = 0
) -> np.ndarray:
    """As `convertFromFloat8AsUInt8ToFloat16`, in float64."""
    return _from_bytes(srcType, src, dtypes.float64, log2Scale).astype(destType, copy=False)


def calculateScaleFromFloat16ToFloat8(src: np.ndarray, destType: DataType) -> int:
    """The power of two, from -31 to 31, with which float16 data lose least in a float8 type."""
    return host_fp8_mse_scale(np.asarray(src, np.float16), _float8(destType))[1]


def calculateScaleFromFloat32ToFloat8(src: np.ndarray, destType: DataType) -> int:
    """As `calculateScaleFromFloat16ToFloat8`, of float32."""
    return host_fp8_mse_scale(np.asarray(src, np.float32), _float8(destType))[1]
