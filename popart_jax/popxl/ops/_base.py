"""Helpers that append operators with one or two operands."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from .._building.create import Out, create, like, result
from ..tensor import Tensor
from . import _shapes
from .utils import check_operands


def unary(op_type: str, t: Tensor, name: str, dtype: dtypes.dtype | None = None, **attributes: Any) -> Tensor:
    """Append an operator with one operand and a result of the same shape."""
    check_operands(t=t)
    return result(create(op_type, [t], [like(t, name, dtype)], attributes))


def binary(
    op_type: str,
    lhs: Tensor,
    rhs: Tensor,
    name: str,
    dtype: dtypes.dtype | None = None,
    names: tuple[str, str] = ("lhs", "rhs"),
) -> Tensor:
    """Append an operator with two operands, which are broadcast as in NumPy."""
    check_operands(**{names[0]: lhs, names[1]: rhs})
    shape = _shapes.broadcast(op_type, lhs, rhs)
    return result(create(op_type, [lhs, rhs], [Out(name, shape, dtype or lhs.dtype)]))
