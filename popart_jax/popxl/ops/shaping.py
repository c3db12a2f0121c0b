"""Operators that only move, rename or convert elements."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import popart_exception
from .. import dtypes
from .._create import Out, create, like, result
from ..context import gcg
from ..tensor import Tensor
from . import _shapes
from ._base import unary
from .utils import check_operands, handle_negative_axis


def _view(op_type: str, t: Tensor, out: Out, view: bool, **attributes: object) -> Tensor:
    check_operands(t=t)
    name = f"{op_type}Inplace" if view else op_type
    return result(create(name, [t], [out], attributes, views=[0] if view else ()))


def reshape(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A copy with another shape; one entry may be -1.

    Raises
    ------
    ValueError
        An entry is 0 or below -1, or -1 appears twice.
    popart_exception
        The number of elements differs.
    """
    return _reshape(t, shape, False)


def reshape_(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`reshape` as a view."""
    return _reshape(t, shape, True)


def _reshape(t: Tensor, shape: tuple[int, ...], view: bool) -> Tensor:
    check_operands(t=t)
    full = _shapes.reshaped(t, shape)
    return _view("Reshape", t, Out(f"{t.name}_reshaped", full, t.dtype), view, shape=full)


def reshape_handle_negative_axis(t: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A target shape with -1 resolved; errors as in `reshape`."""
    return _shapes.reshaped(t, shape)


def flatten(t: Tensor) -> Tensor:
    """A copy with one axis."""
    return reshape(t, (-1,))


def flatten_(t: Tensor) -> Tensor:
    """A view with one axis."""
    return reshape_(t, (-1,))


def squeeze(t: Tensor, axes: list[int] | None = None) -> Tensor:
    """A copy without the given axes of length 1 (default: all of them).

    Raises
    ------
    ValueError
        An axis twice, or one whose length is not 1.
    """
    check_operands(t=t)
    if axes is None:
        chosen = [i for i, d in enumerate(t.shape) if d == 1]
    else:
        chosen = [handle_negative_axis(t, a) for a in axes]
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"The axes {axes} to squeeze name a dimension twice.")
        wrong = [a for a in chosen if not 0 <= a < t.rank or t.shape[a] != 1]
        if wrong:
            raise ValueError(f"Axes {wrong} can't be squeezed: their length in {t.shape} is not 1.")
    return reshape(t, tuple(d for i, d in enumerate(t.shape) if i not in chosen))


def transpose(t: Tensor, permutation: Iterable[int] | None = None) -> Tensor:
    """A copy with permuted axes; default reversed.

    Raises
    ------
    ValueError
        An entry is not an axis.
    """
    return _transpose(t, permutation, False)


def transpose_(t: Tensor, permutation: Iterable[int] | None = None) -> Tensor:
    """`transpose` as a view."""
    return _transpose(t, permutation, True)


def _transpose(t: Tensor, permutation: Iterable[int] | None, view: bool) -> Tensor:
    check_operands(t=t)
    order = tuple(reversed(range(t.rank))) if permutation is None else tuple(int(p) for p in permutation)
    order = tuple(handle_negative_axis(t, p) for p in order)
    if any(not 0 <= p < t.rank for p in order):
        raise ValueError(f"Values in permutation {order} must be less than the rank {t.rank} of the tensor.")
    if len(order) != t.rank or len(set(order)) != t.rank:
        raise popart_exception(f"The permutation {list(order)} does not fit the tensor {t.id!r} of rank {t.rank}")
    out = Out(f"{t.name}_T", tuple(t.shape[p] for p in order), t.dtype)
    return _view("Transpose", t, out, view, perm=order)


INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
Bounds = int | list[int | None] | None


def slice(
    t: Tensor, start: Bounds = None, stop: Bounds = None, step: Bounds = None, axis: int | list[int] | None = None
) -> Tensor:
    """Part of a tensor along leading (or the given) axes; steps are 1 or -1.

    Without any bound the tensor itself is returned.

    Raises
    ------
    ValueError
        The lists have different lengths.
    """
    return _slice(t, start, stop, step, axis, False)


def slice_(
    t: Tensor, start: Bounds = None, stop: Bounds = None, step: Bounds = None, axis: int | list[int] | None = None
) -> Tensor:
    """`slice` as a view."""
    return _slice(t, start, stop, step, axis, True)


def _slice(t: Tensor, start: Bounds, stop: Bounds, step: Bounds, axis: int | list[int] | None, view: bool) -> Tensor:
    check_operands(t=t)
    if start is None and stop is None and step is None:
        return t
    return slice_op(t, *process_args(start, stop, step, axis), view)


def process_args(
    start: Bounds = None, stop: Bounds = None, step: Bounds = None, axis: int | list[int] | None = None
) -> tuple[list, list, list, list]:
    """Bounds as lists of one length, None where the whole axis is meant; axes default to the leading ones.

    Raises
    ------
    ValueError
        The lists have different lengths.
    """
    lists = [[x] if isinstance(x, int) else None if x is None else list(x) for x in (start, stop, step, axis)]
    lengths = {len(x) for x in lists if x is not None}
    if len(lengths) > 1:
        raise ValueError(f"start, stop, step and axis must have the same length, got {start}, {stop}, {step}, {axis}.")
    n = lengths.pop()
    starts, stops, steps, axes = (x if x is not None else [None] * n for x in lists)
    return starts, stops, steps, [i if a is None else int(a) for i, a in enumerate(axes)]


def slice_op(t: Tensor, starts: list, stops: list, steps: list, axes: list[int], view: bool = False) -> Tensor:
    """One Slice operator, whatever the bounds."""
    check_operands(t=t)
    low, high, by = [], [], []
    shape = list(t.shape)
    numbers = [handle_negative_axis(t, a) for a in axes]
    for a, start, stop, step in zip(numbers, starts, stops, steps, strict=True):
        stride = 1 if step is None else int(step)
        if stride not in (1, -1):
            raise ValueError(f"Slice steps must be 1 or -1, got {stride}.")
        if not 0 <= a < t.rank:
            raise popart_exception(f"Slice axis {a} is out of range for rank {t.rank}")
        s, e, _ = dtypes.builtins.slice(start, stop, stride).indices(shape[a])
        shape[a] = len(range(s, e, stride))
        low.append(s)
        high.append(e if e >= 0 else -t.shape[a] - 1)
        by.append(stride)
    out = Out("slice_out", tuple(shape), t.dtype)
    return _view("Slice", t, out, view, starts=low, ends=high, steps=by, axes=numbers)


def subsample(t: Tensor, strides: int | Iterable[int]) -> Tensor:
    """Every n-th element along each leading axis.

    Raises
    ------
    ValueError
        More strides than axes.
    """
    check_operands(t=t)
    listed = [strides] if isinstance(strides, int) else strides if isinstance(strides, list) else list(strides)
    if len(listed) > t.rank:
        raise ValueError(f"{len(listed)} strides are more than the {t.rank} axes of the tensor.")
    listed += [1] * (t.rank - len(listed))
    shape = tuple(-(-d // s) for d, s in zip(t.shape, listed, strict=True))
    return result(create("Subsample", [t], [Out("subsample_out", shape, t.dtype)], {"strides": list(listed)}))


def split(t: Tensor, splits: int | list[int], axis: int = 0) -> list[Tensor]:
    """Parts along an axis: a number of equal ones, or their lengths.

    Raises
    ------
    ValueError
        The axis can't be divided equally.
    popart_exception
        The lengths do not sum to the axis.
    """
    check_operands(t=t)
    axis = handle_negative_axis(t, axis)
    if isinstance(splits, int):
        if t.shape[axis] % splits:
            raise ValueError(f"Axis {axis} of length {t.shape[axis]} can't be split in {splits} equal parts.")
        splits = [t.shape[axis] // splits] * splits
    if sum(splits) != t.shape[axis]:
        raise popart_exception(f"Split lengths {list(splits)} do not sum to {t.shape[axis]}, axis {axis} of {t.id!r}")
    outs = [
        Out(f"{t.name}_split_{i}", (*t.shape[:axis], n, *t.shape[axis + 1 :]), t.dtype) for i, n in enumerate(splits)
    ]
    op = create("Split", [t], outs, {"axis": axis, "split": list(splits)})
    return [result(op, i) for i in range(len(splits))]


def concat(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis.

    Raises
    ------
    TypeError
        Their types differ.
    popart_exception
        Their other axes differ.
    """
    return _concat(list(ts), axis, False)


def concat_(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """`concat` as a view of all operands."""
    return _concat(list(ts), axis, True)


def _concat(ts: list[Tensor], axis: int, view: bool) -> Tensor:
    check_operands(**{f"ts_{i}": t for i, t in enumerate(ts)})
    kinds = {t.dtype.name for t in ts}
    if len(kinds) > 1:
        raise TypeError(f"All tensors to concat must have the same dtype, got {sorted(kinds)}.")
    first = ts[0]
    if not -first.rank <= axis < first.rank:
        raise popart_exception(f"Concat axis {axis} is out of range for rank {first.rank}")
    axis = handle_negative_axis(first, axis)
    rest = [(*t.shape[:axis], *t.shape[axis + 1 :]) for t in ts]
    if any(t.rank != first.rank for t in ts) or any(r != rest[0] for r in rest):
        raise popart_exception(f"Concat along axis {axis}: the shapes {[list(t.shape) for t in ts]} do not fit")
    shape = (*first.shape[:axis], sum(t.shape[axis] for t in ts), *first.shape[axis + 1 :])
    name = "ConcatInplace" if view else "Concat"
    out = Out("concat_out", shape, first.dtype)
    return result(create(name, ts, [out], {"axis": axis}, views=range(len(ts)) if view else ()))


def detach(t: Tensor) -> Tensor:
    """The same values; no gradient flows."""
    return unary("Detach", t, "detach_out")


def detach_(t: Tensor) -> Tensor:
    """`detach` as a view."""
    return _view("Detach", t, like(t, "detach_out"), True)


def identity(t: Tensor, output_name: str | None = None) -> Tensor:
    """A copy, optionally under a name."""
    check_operands(t=t)
    return unary("Identity", t, output_name or f"identity_{t.name}")


rename = identity


def cast(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Another type; floating point is truncated to whole numbers as in C.

    Raises
    ------
    TypeError
        To or from a float8 type: use the scaled casts.
    """
    check_operands(t=t)
    if data_type._is_float8 or t.dtype._is_float8:
        raise TypeError("Use `pow2scale_cast_to_fp8` or `pow2scale_cast_from_fp8` for float8 types.")
    return unary("Cast", t, f"{t.name}_{data_type._name}", data_type, to=data_type)


def pow2scale_cast_to_fp8(t: Tensor, log2_scale: Tensor, data_type: dtypes.dtype) -> Tensor:
    """cast(t * 2**log2_scale) to a float8 type; overflow gives NaN.

    Raises
    ------
    TypeError
        Another target, or a scale that is not int32.
    ValueError
        The scale is no scalar.
    """
    check_operands(t=t, log2_scale=log2_scale)
    if not data_type._is_float8:
        raise TypeError(f"data_type must be a float8 type, got {data_type}.")
    check_log2_scale(log2_scale)
    out = like(t, f"{t.name}_{data_type._name}", data_type)
    return result(create("Pow2ScaleThenCast", [t, log2_scale], [out], {"to": data_type}))


def pow2scale_cast_from_fp8(t: Tensor, log2_scale: Tensor, data_type: dtypes.dtype) -> Tensor:
    """cast(t) * 2**log2_scale as float16 or float32.

    Raises
    ------
    TypeError
        Another target, or a scale that is not int32.
    ValueError
        The scale is no scalar.
    """
    check_operands(t=t, log2_scale=log2_scale)
    if data_type not in (dtypes.float16, dtypes.float32):
        raise TypeError(f"data_type must be float16 or float32, got {data_type}.")
    if not t.dtype._is_float8:
        raise TypeError(f"t must be of a float8 type, got {t.dtype}.")
    check_log2_scale(log2_scale)
    out = like(t, f"{t.name}_{data_type._name}", data_type)
    return result(create("CastThenPow2Scale", [t, log2_scale], [out], {"to": data_type}))


def check_log2_scale(log2_scale: Tensor) -> None:
    """A scale operand is an int32 scalar."""
    if log2_scale.rank != 0:
        raise ValueError(f"`log2_scale` must be a scalar tensor, got shape {log2_scale.shape}.")
    if log2_scale.dtype != dtypes.int32:
        raise TypeError(f"`log2_scale` must be of type popxl.int32, got {log2_scale.dtype}.")


def check_pow2scaled(lhs: Tensor, rhs: Tensor, log2_scale: Tensor) -> None:
    """Operands of a scaled product are float8, its scale an int32 scalar."""
    for t in (lhs, rhs):
        if not t.dtype._is_float8:
            raise TypeError(f"Operands must be of a float8 type, {t!r} is not.")
    check_log2_scale(log2_scale)


def init(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    init_type: str = "zero",
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """A fresh tensor: zeros, or of unspecified content ('undef').

    Raises
    ------
    ValueError
        Unknown `init_type`.
    """
    if init_type not in ("zero", "undef"):
        raise ValueError(f"Unknown init_type: {init_type}. Use 'zero' or 'undef'.")
    gcg()
    dims = tuple(int(d) for d in shape)
    out = Out(name or "t", dims, dtype, tuple(meta_shape or ()))
    return result(create("Init", [], [out], {"shape": dims, "dtype": dtype}, options={"init_type": init_type}))
