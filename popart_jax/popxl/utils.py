"""Host data and text tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ..logs import module_logger
from . import dtypes
from ._running.devices import HW_DEVICE_CONNECTION_TIMEOUT as HW_DEVICE_CONNECTION_TIMEOUT
from ._running.devices import _acquire_hw_device_with_timeout as _acquire_hw_device_with_timeout
from ._running.devices import _offline_device_from_str as _offline_device_from_str
from ._running.devices import _to_device_info as _to_device_info
from .fp8_utils import host_pow2scale_cast_to_fp8 as host_pow2scale_cast_to_fp8

torch_imported = "torch" in sys.modules
downcast_np_dtypes = {
    np.dtype("int64"): np.dtype("int32"),
    np.dtype("uint64"): np.dtype("uint32"),
    np.dtype("float64"): np.dtype("float32"),
}


def to_numpy(
    x: Any,
    dtype: dtypes.dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> np.ndarray:
    """Host data as a C-ordered array.

    Parameters
    ----------
    x : scalar, sequence, ndarray or torch tensor
        The data.
    dtype : popxl.dtype, optional
        Type to convert to.
    downcast : bool
        Without `dtype`, 64-bit types become 32-bit ones.
    copy : bool
        True: the result shares no memory with `x`.
    log2_scale : int, optional
        For float8: the values are multiplied by 2 to this power first.
    nan_on_overflow : bool, optional
        For float8: too large values become NaN (default) instead of the largest number.

    Raises
    ------
    RuntimeError
        A float8 argument without a float8 type.
    TypeError
        Data that can't be converted to float8.
    """
    is_fp8 = dtype is not None and dtypes.dtype._checked(dtype)._is_float8
    if not is_fp8:
        for name, value in (("log2scale", log2_scale), ("nan_on_overflow", nan_on_overflow)):
            if value is not None:
                raise RuntimeError(
                    f"Non-default value for '{name}' is not supported for dtypes other than float8, got {dtype}."
                )
    array = _raw(x)
    if dtype is None and (narrow := downcast_np_dtypes.get(array.dtype)) and downcast:
        array = _narrowed(array, narrow)
    elif dtype is not None and is_fp8:
        array = _to_fp8(array, x, dtype, log2_scale or 0, True if nan_on_overflow is None else nan_on_overflow)
    elif dtype is not None and array.dtype != dtype.as_numpy():
        array = array.astype(dtype.as_numpy())
    array = np.ascontiguousarray(array).reshape(array.shape)
    shares = dtypes.is_torch(x) or (isinstance(x, np.ndarray) and np.shares_memory(array, cast("np.ndarray", x)))
    return array.copy() if copy and shares else array


def _narrowed(array: np.ndarray, narrow: np.dtype) -> np.ndarray:
    found = array.astype(narrow)
    if array.dtype.kind in "iu" and not np.array_equal(found, array):
        module_logger("popxl").warning(
            "Numbers of %s beyond the range of %s were cut to their lower 32 bits: pass a `dtype`, or downcast=False.",
            array.dtype,
            narrow,
        )
    return found


def _raw(x: Any) -> np.ndarray:
    if isinstance(x, (list, tuple)):
        parts = cast("Sequence[Any]", x)
        if any(dtypes.is_torch(e) for e in parts):
            return np.stack([_raw(e) for e in parts])
    array = np.asarray(dtypes.untorched(x))
    if array.dtype == object and not isinstance(x, np.ndarray):
        raise TypeError(f"{x!r} can't become an array of numbers")
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _to_fp8(array: np.ndarray, source: Any, dtype: dtypes.dtype, scale: int, nan_on_overflow: bool) -> np.ndarray:
    if array.dtype == dtype.as_numpy():
        return array
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise TypeError(
            f"Type {array.dtype} is not supported for float8 tensors.Please use float16, float32 or float64 types."
        )
    return host_pow2scale_cast_to_fp8(array, dtype, scale, nan_on_overflow)


def _popxl_to_numpy(t: Any) -> np.ndarray:
    """The host's array of a variable or constant; ValueError where the host has no such type."""
    try:
        t.dtype.as_numpy()
    except TypeError:
        raise ValueError(f"Data type {t.dtype} not supported for get_tensor_data retrieval.") from None
    return t._host


def table_to_string(rows: Sequence[Sequence[Any]], delimiter: str = " | ", header: bool = True) -> str:
    """Rows as text with aligned columns; with `header` a line of dashes follows the first row."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = [delimiter.join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in texts]
    if header and lines:
        lines.insert(1, "-" * (len(lines[0]) + 1))  # the line's end counts
    return "\n".join(lines) + "\n"
