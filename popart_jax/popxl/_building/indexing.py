"""``t[key]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from .. import dtypes
from ..tensor import Tensor, as_tensor
from .bindings import above, operators


@above.enter("index")
def index(t: Tensor, key: Any) -> Tensor:
    """Slices and positions, gather by integers, masking by booleans; any other key raises TypeError."""
    if isinstance(key, (bool, str)):
        raise _invalid(key)
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else None
    if _is_position(key) or (parts is not None and all(map(_is_position, parts))):
        return _static(t, (cast("Any", key),) if parts is None else parts)
    if not isinstance(key, (Tensor, np.ndarray)) and not dtypes.is_torch(key) and not isinstance(key, Iterable):
        raise _invalid(key)
    if parts is not None and not all(isinstance(k, Iterable) for k in parts):
        raise _invalid(key)
    chosen = as_tensor(cast("Any", key))
    if chosen.dtype.is_int:
        return operators.gather(t, chosen)
    if chosen.dtype == dtypes.bool:
        return operators.where(chosen, t, as_tensor(0, t.dtype))
    raise _invalid(key)


def _invalid(key: Any) -> TypeError:
    return TypeError(
        "Only integers, slices (`:`), integer tensors and boolean tensors are valid indices. "
        f"Not a valid Type: {type(key)}. Value: {key}."
    )


def _is_position(k: Any) -> bool:
    return isinstance(k, slice) or (isinstance(k, (int, np.integer)) and not isinstance(k, bool))


def _static(t: Tensor, key: tuple[Any, ...]) -> Tensor:
    if len(key) > t.rank:
        raise TypeError(f"Too many indices for a tensor of rank {t.rank}: {key}.")
    starts, stops = list[int | None](), list[int | None]()
    steps, strides, squeezed = list[int](), list[int](), list[int]()
    for axis, k in enumerate(key):
        if isinstance(k, slice):
            given = cast("slice[Any, Any, Any]", k)
            step: int = 1 if given.step is None else given.step
            starts.append(given.start)
            stops.append(given.stop)
            steps.append(1 if step > 0 else -1)
            strides.append(abs(step))
        else:
            if not -t.shape[axis] <= k < t.shape[axis]:
                raise ValueError(f"Index {k} is out of range for axis {axis} of {t!r}, which has {t.shape[axis]}.")
            starts.append(int(k))
            stops.append(None if k == -1 else int(k) + 1)
            steps.append(1)
            strides.append(1)
            squeezed.append(axis)
    out = operators.slice_op(t, starts, stops, steps, list(range(len(key))))
    if any(s != 1 for s in strides):
        out = operators.subsample(out, strides)
    if squeezed:
        out = operators.squeeze(out, squeezed)
    return out
