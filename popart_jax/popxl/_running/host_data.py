"""Host data of variables: copies of arrays, memory maps as they are."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np

from .. import dtypes
from ..replica_grouping import ReplicaGrouping
from ..utils import downcast_np_dtypes, to_numpy


def host_array(
    data: Any,
    dtype: dtypes.dtype | None,
    downcast: bool,
    grouping: ReplicaGrouping | None,
    log2_scale: int | None,
    nan_on_overflow: bool | None,
) -> np.ndarray:
    """The host buffer for `data`.

    A memmap that can't be used as it is raises ValueError; float8 arguments without a float8 type raise RuntimeError.
    """
    if not isinstance(data, np.memmap):
        return to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    mapped = cast("np.memmap", data)
    check_memmap(mapped, dtype)
    if grouping is not None and not grouping.is_const:
        print(  # noqa: T201 - as upstream does
            "Warning: you have passed np.memmap data and a non-const replica grouping; the data are copied.",
            file=sys.stderr,
        )
        return np.array(mapped)
    return mapped


def check_memmap(data: np.memmap, dtype: dtypes.dtype | None) -> None:
    """A memory map is the buffer itself, so nothing about it may need a change (ValueError)."""
    what = "When passing a memory-mapped NumPy array,"
    if dtype is not None and dtype.as_numpy() != data.dtype:
        raise ValueError(
            f"{what} the `dtype` parameter must be None or the same as the array's dtype. "
            f"Array dtype: {data.dtype}, `dtype`: {dtype}."
        )
    if not (data.flags.c_contiguous and data.flags.aligned):
        raise ValueError(f"{what} it must already be in C-ordered and aligned form.")
    if data.dtype in downcast_np_dtypes:
        raise ValueError(
            f"{what} the dtype {dtype} is not supported, as it requires downcasting the array into a new array with a "
            "dtype supported by PopXL."
        )
