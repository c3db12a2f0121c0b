"""Host memory that XLA's CPU client takes over without a copy: 64-byte aligned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An uninitialised C-contiguous array whose data start at a multiple of 64 bytes."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(kind).reshape(shape)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A copy in aligned memory."""
    copied = aligned_empty(array.shape, array.dtype)
    np.copyto(copied, array)
    return copied
