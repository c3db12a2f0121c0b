"""PopART's float8 functions for NumPy arrays: conversion to and from flat bytes, and the scale with least error."""

from __future__ import annotations

from collections.abc import Callable
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


def _to_float8(source: type[np.floating[Any]], doc: str) -> Callable[[DataType, Any, int, bool], np.ndarray]:
    def convert(destType: DataType, src: np.ndarray, log2Scale: int, throwOnOverflow: bool) -> np.ndarray:
        values = np.asarray(src, source).reshape(-1)
        small = host_pow2scale_cast_to_fp8(values, _float8(destType), log2Scale, throwOnOverflow)
        return np.ascontiguousarray(small).view(np.uint8)

    convert.__name__, convert.__doc__ = f"convertFrom{source.__name__.title()}ToFloat8AsUInt8", doc
    return convert


def _from_float8(target: dtypes.dtype, doc: str) -> Callable[..., np.ndarray]:
    def convert(srcType: DataType, src: np.ndarray, destType: np.dtype, log2Scale: int = 0) -> np.ndarray:
        small = np.ascontiguousarray(src, np.uint8).reshape(-1).view(_float8(srcType).as_numpy())
        return host_pow2scale_cast_from_fp8(small, target, log2Scale).astype(destType, copy=False)

    convert.__name__, convert.__doc__ = f"convertFromFloat8AsUInt8To{target.name.title()}", doc
    return convert


convertFromFloat16ToFloat8AsUInt8 = _to_float8(
    np.float16, "Bytes of ``src * 2**log2Scale`` in a float8 type, flat; values beyond it are NaN or its largest."
)
convertFromFloat32ToFloat8AsUInt8 = _to_float8(np.float32, "As `convertFromFloat16ToFloat8AsUInt8`, of float32.")
convertFromFloat64ToFloat8AsUInt8 = _to_float8(np.float64, "As `convertFromFloat16ToFloat8AsUInt8`, of float64.")
convertFromFloat8AsUInt8ToFloat16 = _from_float8(
    dtypes.float16, "Float16 values of float8 bytes, times ``2**log2Scale``, flat."
)
convertFromFloat8AsUInt8ToFloat32 = _from_float8(dtypes.float32, "As `convertFromFloat8AsUInt8ToFloat16`, in float32.")
convertFromFloat8AsUInt8ToFloat64 = _from_float8(dtypes.float64, "As `convertFromFloat8AsUInt8ToFloat16`, in float64.")


def calculateScaleFromFloat16ToFloat8(src: np.ndarray, destType: DataType) -> int:
    """The power of two, from -31 to 31, with which float16 data lose least in a float8 type."""
    return host_fp8_mse_scale(np.asarray(src, np.float16), _float8(destType))[1]


def calculateScaleFromFloat32ToFloat8(src: np.ndarray, destType: DataType) -> int:
    """As `calculateScaleFromFloat16ToFloat8`, of float32."""
    return host_fp8_mse_scale(np.asarray(src, np.float32), _float8(destType))[1]
