"""Forms shared by many operators."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from .._create import Out, create, like, result
from ..tensor import Tensor
from . import _shapes
from .utils import check_operands


def unary(op_type: str, t: Tensor, name: str, dtype: dtypes.dtype | None = None, **attributes: Any) -> Tensor:
    """One operand, same shape."""
    check_operands(t=t)
    return result(create(op_type, [t], [like(t, name, dtype)], attributes))


def unary_(op_type: str, t: Tensor, name: str, **attributes: Any) -> Tensor:
    """One operand, overwritten with the result."""
    check_operands(t=t)
    return result(create(op_type, [t], [like(t, name)], attributes, writes=[(0, 0)]))


def binary(
    op_type: str,
    lhs: Tensor,
    rhs: Tensor,
    name: str,
    dtype: dtypes.dtype | None = None,
    names: tuple[str, str] = ("lhs", "rhs"),
) -> Tensor:
    """Two operands with NumPy broadcasting."""
    check_operands(**{names[0]: lhs, names[1]: rhs})
    shape = _shapes.broadcast(op_type, lhs, rhs)
    return result(create(op_type, [lhs, rhs], [Out(name, shape, dtype or lhs.dtype)]))
