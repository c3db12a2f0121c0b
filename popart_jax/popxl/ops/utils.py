"""Helpers for code that defines operators in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import dtypes
from .._bindings import operators
from .._checks import check_in_graph as check_in_graph
from .._checks import check_tensor_ipu_and_tile_set as check_tensor_ipu_and_tile_set
from .._internal.values import OptionalDataType, OptionalFloat, OptionalInt, OptionalInt64Vector
from ..context import gcg
from ..tensor import Tensor

__all__ = [
    "cast_if_needed",
    "check_in_graph",
    "check_tensor_ipu_and_tile_set",
    "convert_optional_dtype",
    "convert_optional_float",
    "convert_optional_int",
    "convert_optional_int64_list",
    "handle_negative_axis",
]


def cast_if_needed(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """`t` itself, or a cast when its type differs."""
    return t if t.dtype == data_type else operators.cast(t, data_type)


def handle_negative_axis(t: Tensor, axis: int) -> int:
    """An axis counted from the front."""
    return t.rank + axis if axis < 0 else axis


def handle_axes(t: Tensor, axis: int | Iterable[int] | None) -> list[int]:
    """Axes counted from the front; None means all."""
    if axis is None:
        return list(range(t.rank))
    axes = [axis] if isinstance(axis, int) else list(axis)
    return [handle_negative_axis(t, a) for a in axes]


def convert_optional_float(v: float | None) -> OptionalFloat:
    """As an optional of the internal IR."""
    return OptionalFloat(v)


def convert_optional_int(v: int | None) -> OptionalInt:
    """As an optional of the internal IR."""
    return OptionalInt(v)


def convert_optional_dtype(dt: dtypes.dtype | None) -> OptionalDataType:
    """As an optional of the internal IR."""
    return OptionalDataType(None if dt is None else dt._pb_dtype)


def convert_optional_int64_list(l: list[int] | None) -> OptionalInt64Vector:  # noqa: E741 - PopXL's own name
    """As an optional of the internal IR."""
    return OptionalInt64Vector(l)


def check_operands(**tensors: Any) -> None:
    """Operands are tensors of the current graph, on one IPU and tile set."""
    check_in_graph(gcg(), **tensors)
    if len(tensors) > 1:
        check_tensor_ipu_and_tile_set(**tensors)
