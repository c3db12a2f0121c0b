"""Host memory that XLA's CPU client can use without a copy: aligned to 64 bytes, and never written to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An uninitialised C-contiguous array whose data start at a multiple of 64 bytes."""
    return _aligned(shape, dtype, np.empty)


def unaligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An uninitialised array, of elements of up to four bytes, that XLA copies and does not share."""
    return _aligned(shape, dtype, np.empty, past=4)


def _aligned(shape: Sequence[int], dtype: Any, make: Callable[..., np.ndarray], past: int = 0) -> np.ndarray:
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = make(size + ALIGNMENT + past, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT + past
    return raw[start : start + size].view(kind).reshape(shape)


def _is_repeated_zero(array: np.ndarray) -> bool:
    return array.size > 1 and not any(array.strides) and not any(array[(0,) * array.ndim].tobytes())


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A copy in aligned memory; of a zero that is repeated by memory that the system fills when it is written to."""
    if _is_repeated_zero(array):
        return _aligned(array.shape, array.dtype, np.zeros)
    copied = aligned_empty(array.shape, array.dtype)
    if not is_turned(array):
        np.copyto(copied, array)
        return copied
    for begin in range(0, array.shape[-1], _STRIP):
        columns = ..., slice(begin, begin + _STRIP)
        copied[columns] = array[columns]
    return copied


def is_turned(array: np.ndarray) -> bool:
    """Whether the elements of a row lie in different lines of the cache."""
    return array.ndim > 1 and array.strides[-1] >= ALIGNMENT


_STRIP = 16
"""Columns of a transposed array that are copied together: 3072 x 768 take 3.2 ms, whole 5.2."""


def truths(array: np.ndarray) -> np.ndarray:
    """The array; booleans with other bytes than 0 and 1, which NumPy takes for true, are converted for XLA."""
    if array.dtype != np.bool_ or not array.size or array.view(np.uint8).max() < _NO_TRUTH:
        return array
    return array.view(np.uint8) != 0


_NO_TRUTH = 2


def owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory this one is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def frozen(array: np.ndarray) -> np.ndarray:
    """The same array, made read-only together with all arrays that it is a view of."""
    part: object = array
    while isinstance(part, np.ndarray):
        part.flags.writeable = False
        part = part.base
    return array


def shareable(array: np.ndarray) -> np.ndarray:
    """The array itself, or an aligned copy of one that XLA would copy (`is_copied`)."""
    return aligned_copy(array) if is_copied(array) else array


def is_copied(array: np.ndarray) -> bool:
    """Whether XLA copies an argument in another thread, and runs the program, which waits for the copy, there too."""
    return array.nbytes >= _COPIED_AT_ONCE and not is_aligned(array)


_COPIED_AT_ONCE = 100 << 10  # by XLA, in the thread that calls it


def is_aligned(array: np.ndarray) -> bool:
    """Whether it is in rows, and starts where XLA wants memory to start."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0


def lasting(array: np.ndarray) -> np.ndarray:
    """The array itself if its memory is aligned and can't be written to (see `frozen`), else an aligned copy."""
    return array if _is_frozen(array) and is_aligned(array) else aligned_copy(array)


def _is_frozen(array: np.ndarray) -> bool:
    part: object = array
    while isinstance(part, np.ndarray):
        if part.flags.writeable:
            return False
        part = part.base
    return part is None and array.size > 0
