"""Helpers for code that defines operators in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import popart_exception
from .. import dtypes
from .._building.bindings import operators
from .._building.checks import check_in_graph as check_in_graph
from .._building.checks import check_tensor_ipu_and_tile_set as check_tensor_ipu_and_tile_set
from .._building.spec import whole_number
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
    """An axis counted from the front; TypeError unless it is a whole number."""
    number = whole_number("axis", axis)
    return t.rank + number if number < 0 else number


def axis_or(refusal: str, t: Tensor, axis: int) -> int:
    """An axis counted from the front; popart_exception where it is none, with its number and bounds in the text."""
    if not -t.rank <= axis < t.rank:
        raise popart_exception(refusal.format(axis=axis, bounds=f"[{-t.rank}, {t.rank - 1}]"))
    return handle_negative_axis(t, axis)


def axis_within(what: str, t: Tensor, axis: int, more: int = 0) -> int:
    """An axis counted from the front, of the tensor's axes and `more` new ones; popart_exception when it is none."""
    axis = whole_number("axis", axis)
    rank = max(t.rank + more, 1)  # a scalar counts as one element
    if not -rank <= axis < rank:
        raise popart_exception(f"{what}: axis {axis} of {t!r} is outside the acceptable range [{-rank}, {rank - 1}]")
    return axis % rank


def handle_axes(t: Tensor, axis: int | Iterable[int] | None) -> list[int]:
    """Axes counted from the front; None means all."""
    if axis is None:
        return list(range(t.rank))
    return [handle_negative_axis(t, a) for a in (axis if isinstance(axis, Iterable) else [axis])]


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
    """Check that operands are tensors of the current graph, on one IPU and tile set."""
    check_in_graph(gcg(), **tensors)
    if len(tensors) > 1:
        check_tensor_ipu_and_tile_set(**tensors)


def check_log2_scale(log2_scale: Tensor) -> None:
    """Check that a scale operand is an int32 scalar."""
    if not isinstance(log2_scale, Tensor):
        return  # `check_operands` reports it
    if log2_scale.rank != 0:
        raise ValueError("Log2 scale argument must be a scalar tensor")
    if log2_scale.dtype != dtypes.int32:
        raise TypeError("Log2 scale tensor must be of type popxl.int32")


def check_pow2scaled(op: str, lhs: Tensor, rhs: Tensor, log2_scale: Tensor) -> None:
    """Check that the operands of a scaled product are float8, and its scale an int32 scalar."""
    if any(isinstance(t, Tensor) and not t.dtype._is_float8 for t in (lhs, rhs)):
        raise TypeError(f"Scaled {op} operands must be of dtype popxl.float8_143 or popxl.float8_152")
    check_log2_scale(log2_scale)
