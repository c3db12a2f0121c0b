"""NumPy broadcasting of shapes and tensor infos, with PopART's error texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import popart_exception
from ...model.tensor_info import _TensorInfoCore as TensorInfo


def broadcast_shapes(op: str, one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The shape of the result of two operands; popart_exception where theirs are not aligned."""
    try:
        return tuple(int(d) for d in np.broadcast_shapes(tuple(one), tuple(other)))
    except ValueError:
        frames = f"{list(one)} and {list(other)}"
        raise popart_exception(f"np broadcasting failed on '{op}', frames {frames} are not aligned") from None


def pretty_np_out(op: str, a: Any, b: Any) -> Any:
    """The broadcast shape of two shapes, or the broadcast info of two tensor infos of one type."""
    if not isinstance(a, TensorInfo):
        return list(broadcast_shapes(op, a, b))
    return TensorInfo(a.dataType(), list(broadcast_shapes(op, a.shape(), b.shape())))
