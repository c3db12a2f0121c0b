"""Shape and type inference of operators, with PopART's error texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...errors import popart_exception
from ...model.op_names import listed, type_and_shape
from .._internal.broadcasting import broadcast_shapes
from ..tensor import Tensor
from . import _names


def info(t: Tensor) -> str:
    """Type and shape of a tensor in PopART's notation: ``FLOAT   [2 3]``."""
    return type_and_shape(t.dtype._pb_dtype.name, t.shape)


def broadcast(op: str, first: Tensor, *others: Tensor) -> tuple[int, ...]:
    """NumPy broadcasting of operands of one type, joined from the left; popart_exception if they do not fit."""
    joined = first.shape
    for t in others:
        if t.dtype.name != first.dtype.name:
            types = f"{first.dtype._pb_dtype.name} and {t.dtype._pb_dtype.name}"
            shapes = f"{listed(joined)} and {listed(t.shape)}"
            shown = _names.short(op) if op == "Mul" else f"Op {_names.short(op)}"
            raise popart_exception(f"np broadcasting failed on {shown}, incompatible types {types} (shapes {shapes})")
        joined = aligned(op, joined, t.shape)
    return joined


def aligned(op: str, one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """NumPy broadcasting of two shapes of an operator that is about to be made; popart_exception if they do not fit."""
    return broadcast_shapes(f"Op {_names.short(op)}", one, other)


def matmul(lhs: Tensor, rhs: Tensor) -> tuple[int, ...]:
    """NumPy's matrix product; popart_exception for scalars, and for contracted dimensions that differ."""
    a, b = lhs.shape, rhs.shape
    if not a or not b:
        scalar, side = (rhs, "rhs") if a else (lhs, "lhs")
        named = _names.long("MatMul", (lhs, rhs), "matmul_out")
        raise popart_exception(f"{named} doesn't support scalar tensor {scalar.id} as the {side} input")
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        shown = f"lhs '{lhs.id}' {listed(a)}, rhs '{rhs.id}' {listed(b)}"
        named = _names.long("MatMul", (lhs, rhs), "matmul_out")
        raise popart_exception(f"{named} contracting dimensions unequal: {shown}")
    rows = (a[-2],) if len(a) > 1 else ()
    columns = (b[-1],) if len(b) > 1 else ()
    return (*aligned("MatMul", a[:-2], b[:-2]), *rows, *columns)


def reduced(shape: Sequence[int], axes: Iterable[int], keepdims: bool) -> tuple[int, ...]:
    """A shape after reducing some axes; popart_exception for an axis out of range."""
    gone = set(axes)
    if any(not 0 <= a < len(shape) for a in gone):
        raise popart_exception(f"axes {sorted(gone)} are out of range for rank {len(shape)}")
    if keepdims:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def reshaped(t: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """A target shape with -1 resolved.

    Raises ValueError where an entry is 0 or below -1, or -1 appears twice; popart_exception where the number of
    elements differs.
    """
    if any(d == 0 or d < -1 for d in shape):
        raise ValueError(f"Invalid shape value in reshape. Must be '>0' or '-1'. Provided {shape}.")
    if shape.count(-1) > 1:
        raise ValueError(f"Reshape shape can contain at most one '-1' value. Provided {shape}.")
    known = math.prod(d for d in shape if d != -1)
    full = tuple(int(t.nelms // known if d == -1 else d) for d in shape)
    if math.prod(full) != t.nelms:
        named = _names.long("Reshape", (t,), f"{t.name}_reshaped")
        raise popart_exception(
            f"Failure in ReshapeOp::setup() for {named}. Trying to reshape from {listed(t.shape)} to {listed(full)}. "
            f"The number of elements of the input is {t.nelms}, while the number of elements of the output is "
            f"{math.prod(full)}. The number of elements cannot change for a ReshapeOp"
        )
    return full
