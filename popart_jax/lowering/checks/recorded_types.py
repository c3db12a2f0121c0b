"""Results have the types that the graph records, where front ends check no types when they make an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ops.arrays import device_dtype
from .failure import node_error


def as_recorded(node: ir.Node, operands: list[Any], results: Sequence[Any]) -> tuple[Any, ...]:
    """The results with the data types that the graph records.

    An operator that takes any operands, such as a variable's update, may make another type from them.

    Raises
    ------
    NodeError
        A result has another shape than the graph records.
    """
    typed = [_typed(node, operands, v, x) for v, x in zip(node.outputs, results, strict=False)]
    return (*typed, *results[len(typed) :])


def _typed(node: ir.Node, operands: list[Any], value: ir.Value, result: Any) -> Any:
    if value.shape is not None and tuple(value.shape) != np.shape(result):
        made, known = list(np.shape(result)), list(value.shape)
        raise node_error(node, operands, f"it makes shape {made} of them, where {value.name!r} has shape {known}")
    dtype = None if value.dtype is None else device_dtype(int(value.dtype))
    return result if dtype is None or result.dtype == dtype else result.astype(dtype)
