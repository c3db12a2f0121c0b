"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from ...errors import popart_exception
from .. import dtypes
from .._building.create import Out, create, result
from .._building.spec import checked_shape
from ..tensor import Tensor, constant
from . import _names, _shapes
from ._base import unary
from .utils import axis_or, axis_within, check_operands, handle_axes

__all__ = [
    "argmax", "argmin", "cumsum", "histogram", "l1", "l2", "lamb_square", "logsum", "logsumexp", "max", "mean",
    "median", "min", "prod", "softmax", "sum", "sumsquare", "topk",
]  # fmt: skip

Axes = int | Iterable[int] | None


def _reduce(op_type: str, t: Tensor, axis: Axes, keepdims: bool, name: str) -> Tensor:
    check_operands(t=t)
    axes = handle_axes(t, axis)
    out = Out(name, _shapes.reduced(t.shape, axes, keepdims), t.dtype)
    if not axes and t.rank:  # ONNX's older operators take no axes for all; this form reduces each element by itself
        attributes = {"keepdims": int(keepdims), "noop_with_empty_axes": 1}
        return result(create(op_type, [t], [out], attributes, runs=("", op_type, 18)))
    return result(create(op_type, [t], [out], {"axes": axes, "keepdims": int(keepdims)}))


def l1(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Sum of absolute values."""
    return _reduce("ReduceL1", t, axis, keepdims, "l1_out")


def l2(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Square root of the sum of squares."""
    return _reduce("ReduceL2", t, axis, keepdims, "l2_out")


def logsum(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Logarithm of the sum."""
    return _reduce("ReduceLogSum", t, axis, keepdims, "logsum_out")


def logsumexp(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials, computed stably."""
    return _reduce("ReduceLogSumExp", t, axis, keepdims, "logsumexp_out")


def max(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Largest element."""
    return _reduce("ReduceMax", t, axis, keepdims, "max_out")


def mean(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean."""
    return _reduce("ReduceMean", t, axis, keepdims, "mean_out")


def min(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Smallest element."""
    return _reduce("ReduceMin", t, axis, keepdims, "min_out")


def prod(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Product."""
    return _reduce("ReduceProd", t, axis, keepdims, "prod_out")


def sum(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Sum."""
    return _reduce("ReduceSum", t, axis, keepdims, "sum_out")


def sumsquare(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Sum of squares."""
    return _reduce("ReduceSumSquare", t, axis, keepdims, "sumsquare_out")


def median(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Lower median; the operator also gives the indices, which are not returned."""
    check_operands(t=t)
    axes = handle_axes(t, axis)
    shape = _shapes.reduced(t.shape, axes, keepdims)
    outs = [Out("median_out", shape, t.dtype), Out("median_indices_out", shape, dtypes.int32)]
    return result(create("ReduceMedian", [t], outs, {"axes": axes, "keepdims": int(keepdims)}))


def lamb_square(t: Tensor) -> Tensor:
    """Sum of the squares of all elements, in float32."""
    check_operands(t=t)
    return result(create("LambSquare", [t], [Out("lamb_square_out", (), dtypes.float32)]))


def argmax(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Index of the largest element along an axis, the first one on ties; int32."""
    return _arg("ArgMax", t, dim, keepdim, "argmax_out")


def argmin(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Index of the smallest element along an axis, the first one on ties; int32."""
    return _arg("ArgMin", t, dim, keepdim, "argmin_out")


def _arg(op_type: str, t: Tensor, dim: int, keepdim: bool, name: str) -> Tensor:
    check_operands(t=t)
    if not t.rank:
        named = f"invalid ArgExtremaOp {_names.short(op_type)}."
        raise popart_exception(f"ArgExtremaOp input rank must be greater than 0, {named}")
    axis = axis_or("Axis {axis} is out of acceptable range {bounds}", t, dim)
    out = Out(name, _shapes.reduced(t.shape, [axis], bool(keepdim)), dtypes.int32)
    return result(create(op_type, [t], [out], {"axis": axis, "keepdims": int(bool(keepdim))}))


def cumsum(t: Tensor, dim: int = 0) -> Tensor:
    """Inclusive cumulative sum along an axis."""
    check_operands(t=t)
    dim = axis_within("cumsum", t, dim)
    axis = constant(np.asarray(dim, np.int64), dtypes.int64, "dim")
    out = Out("cumsum_out", t.shape, t.dtype)
    return result(create("CumSum", [t, axis], [out], {"dim": dim}))


def topk(
    t: Tensor, k: int, axis: int, largest: bool, sorted: bool, available_memory_proportion: float | None = None
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis, and their indices (int32)."""
    check_operands(t=t)
    axis = axis_within("topk", t, axis)
    if not t.rank:
        raise popart_exception(
            f"BaseSortOp input rank must be greater than 0, invalid BaseSortOp {_names.short('TopK')}."
        )
    if k > t.shape[axis]:
        raise popart_exception(f"Cannot take top-{k} on dim of size {t.shape[axis]}, invalid Op {_names.short('TopK')}")
    shape = checked_shape((*t.shape[:axis], k, *t.shape[axis + 1 :]))
    outs = [Out("topk_out_value", shape, t.dtype), Out("topk_out_indices", shape, dtypes.int32)]
    attributes = {"k": int(k), "axis": axis, "largest": int(largest), "sorted": int(sorted)}
    op = create("TopK", [t], outs, attributes, options={"available_memory_proportion": available_memory_proportion})
    return result(op), result(op, 1)


def histogram(t: Tensor, levels: list[float], absolute_of_input: bool) -> Tensor:
    """Number of elements between neighbouring levels; the last bin includes its end.

    Raises
    ------
    ValueError
        The levels do not increase.
    """
    check_operands(t=t)
    check_increment(levels)
    out = Out("histogram_out", (len(levels) - 1,), dtypes.uint32)
    attributes = {"levels": [dtypes.builtins.float(x) for x in levels], "absoluteOfInput": int(absolute_of_input)}
    return result(create("Histogram", [t], [out], attributes))


def check_increment(levels: list[float]) -> None:
    """Levels increase strictly (ValueError)."""
    if any(b <= a for a, b in pairwise(levels)):
        raise ValueError(f"The input levels `{levels}` is not a monotonically increasing list.")


def softmax(t: Tensor, axis: int) -> Tensor:
    """Exponentials along an axis, normalised to sum 1."""
    check_operands(t=t)
    return unary("Softmax", t, "softmax_out", None, axis=axis_within("softmax", t, axis))
