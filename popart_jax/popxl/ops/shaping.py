"""Operators that only move, rename or convert elements."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import popart_exception
from ...model.op_names import listed
from ...ops.join import check_concat
from .. import dtypes
from .._building.checks import check_tensors
from .._building.create import Out, create, like, result
from .._building.spec import checked_shape, whole_number, whole_numbers
from ..context import gcg
from ..tensor import Tensor
from . import _names, _shapes
from ._base import unary
from .utils import axis_or, check_log2_scale, check_operands, handle_negative_axis

__all__ = [
    "cast", "concat", "concat_", "detach", "detach_", "flatten", "flatten_", "identity", "init",
    "pow2scale_cast_from_fp8", "pow2scale_cast_to_fp8", "rename", "reshape", "reshape_", "slice", "slice_", "split",
    "squeeze", "subsample", "transpose", "transpose_",
]  # fmt: skip


def _view(op_type: str, t: Tensor, out: Out, view: bool, **attributes: object) -> Tensor:
    check_operands(t=t)
    name = f"{op_type}Inplace" if view else op_type
    return result(create(name, [t], [out], attributes))


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
    full = _shapes.reshaped(t, tuple(shape))
    return _view("Reshape", t, Out(f"{t.name}_reshaped", full, t.dtype), view, shape=full)


def reshape_handle_negative_axis(t: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A target shape with -1 resolved; errors as in `reshape`."""
    return _shapes.reshaped(t, tuple(shape))


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
    check_tensors(t=t)
    if axes is None:
        chosen = [i for i, d in enumerate(t.shape) if d == 1]
    else:
        chosen = [handle_negative_axis(t, a) for a in axes]
        if len(set(chosen)) != len(chosen):
            raise ValueError("Axes contains duplicates")
        for a in chosen:
            if not 0 <= a < t.rank:
                raise ValueError(f"Can't squeeze axis '{a}' as tensor has rank '{t.rank}'")
            if t.shape[a] != 1:
                raise ValueError(f"Can't squeeze axis '{a}' as length of axis is >1: {t.shape[a]}")
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
    check_tensors(t=t)
    order = tuple(reversed(range(t.rank))) if permutation is None else tuple(whole_numbers("permutation", permutation))
    if large := tuple(p for p in order if p >= t.rank):
        raise ValueError(f"Values in permutation must be less than the tensor's rank {t.rank}. Found {large}")
    check_operands(t=t)
    order = tuple(handle_negative_axis(t, p) for p in order)
    if len(order) != t.rank:
        raise popart_exception(
            f"Rank of permutation tensor {listed(order)}, rank {len(order)} must be equal to rank of input tensor, "
            f"shape {listed(t.shape)}, rank {t.rank}."
        )
    if sorted(order) != list(range(t.rank)):
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
) -> tuple[list[int | None], list[int | None], list[int | None], list[int]]:
    """Bounds as lists of one length, None where the whole axis is meant; axes default to the leading ones.

    Raises
    ------
    ValueError
        The lists have different lengths.
    """
    lists: list[list[int | None] | None] = [
        None if x is None else list(x) if isinstance(x, Iterable) else [x] for x in (start, stop, step, axis)
    ]
    n = next(len(x) for x in lists if x is not None)
    for name, x in zip(("start", "stop", "step", "axis"), lists, strict=True):
        if x is not None and len(x) != n:
            raise ValueError(f"All inputs must have same length. `{name}` has length {len(x)} != {n}.")
    whole: list[int | None] = [None] * n
    starts, stops, steps, axes = (whole if x is None else x for x in lists)
    return starts, stops, steps, [i if a is None else whole_number("axis", a) for i, a in enumerate(axes)]


def slice_op(
    t: Tensor,
    starts: list[int | None],
    stops: list[int | None],
    steps: list[int | None],
    axes: list[int],
    view: bool = False,
) -> Tensor:
    """One Slice operator, whatever the bounds."""
    check_operands(t=t)
    low, high, by = list[int](), list[int](), list[int]()
    shape = list(t.shape)
    numbers = [handle_negative_axis(t, a) for a in axes]
    for a, start, stop, step in zip(numbers, starts, stops, steps, strict=True):
        stride = 1 if step is None else whole_number("step", step)
        if stride not in (1, -1):
            raise popart_exception(
                f"Please enable pattern \"Slice2SliceSubsample\" first. Invalid 'step' value, {stride}, in "
                "BaseSliceOp::getSlices. Only steps of '1' or '-1' are supported. This error is for Op "
                f"{_names.short('Slice')}."
            )
        if not 0 <= a < t.rank:
            raise popart_exception(
                f"Invalid input shape in BaseSliceOp::getSlices. The input shape has rank {t.rank}, but axis = {a}. "
                f"axis must be less than the input shape's rank. This error is for Op {_names.short('Slice')}."
            )
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
    listed = whole_numbers("strides", strides if isinstance(strides, Iterable) else [strides])
    if len(listed) > t.rank:
        raise ValueError("The length of subsample `strides` must not be greater than the rank of the input tensor.")
    listed += [1] * (t.rank - len(listed))
    if 0 in listed:
        raise popart_exception(f"Strides invalid. 0 stride at index {listed.index(0)}")
    shape = tuple(-(-d // s) for d, s in zip(t.shape, listed, strict=True))
    return result(create("Subsample", [t], [Out("subsample_out", shape, t.dtype)], {"strides": listed}))


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
    if not 0 <= axis < t.rank:
        raise popart_exception(f"Axis {axis} is out of range for tensor with {t.rank} dims")
    if isinstance(splits, int):
        if not splits or t.shape[axis] % splits:
            raise ValueError(f"Split {splits} does not equally divide tensor axis {axis} of length {t.shape[axis]}.")
        splits = [t.shape[axis] // splits] * splits
    lengths = checked_shape(splits)
    if sum(lengths) != t.shape[axis]:
        raise popart_exception(f"splits {sum(lengths)} invalid for dimension of size {t.shape[axis]}")
    outs = [
        Out(f"{t.name}_split_{i}", (*t.shape[:axis], n, *t.shape[axis + 1 :]), t.dtype) for i, n in enumerate(lengths)
    ]
    op = create("Split", [t], outs, {"axis": axis, "split": list(lengths)})
    return [result(op, i) for i in range(len(lengths))]


def concat(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis.

    Raises
    ------
    TypeError
        Their types differ.
    ValueError
        There are none.
    popart_exception
        Their other axes differ.
    """
    return _concat(list(ts), axis, False)


def concat_(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """`concat` as a view of all operands."""
    return _concat(list(ts), axis, True)


def _concat(ts: list[Tensor], axis: int, view: bool) -> Tensor:
    kinds = [t.dtype for t in ts if isinstance(t, Tensor)]
    if any(kind != kinds[0] for kind in kinds):
        raise TypeError(f"All inputs to a concat operation must have the same type: {kinds}")
    check_operands(**{f"ts_{i}": t for i, t in enumerate(ts)})
    if not ts:
        raise ValueError("concat needs at least one tensor.")
    first = ts[0]
    axis = axis_or("Attribute 'axis' of ConcatOp, {axis}, is outside of acceptable range {bounds}", first, axis)
    check_concat([t.shape for t in ts], axis, axis)
    shape = (*first.shape[:axis], sum(t.shape[axis] for t in ts), *first.shape[axis + 1 :])
    name = "ConcatInplace" if view else "Concat"
    out = Out("concat_out", shape, first.dtype)
    return result(create(name, ts, [out], {"axis": axis}))


def detach(t: Tensor) -> Tensor:
    """The same values; no gradient flows."""
    return unary("Detach", t, "detach_out")


def detach_(t: Tensor) -> Tensor:
    """`detach` as a view."""
    check_operands(t=t)
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
    if dtypes.dtype._checked(data_type, "data_type")._is_float8 or (isinstance(t, Tensor) and t.dtype._is_float8):
        raise TypeError(
            f"Data type {data_type} not supported for cast of {t!r}, please consider "
            "pow2scale_cast_to_fp8 or pow2scale_cast_from_fp8"
        )
    check_operands(t=t)
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
    if not dtypes.dtype._checked(data_type, "data_type")._is_float8:
        raise TypeError(f"Data type {data_type} not supported for pow2scale_cast_to_fp8, which gives float8 types.")
    check_log2_scale(log2_scale)
    check_operands(t=t, log2_scale=log2_scale)
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
    if data_type not in (dtypes.float16, dtypes.float32):
        raise TypeError(
            f"Data type {data_type} not supported for pow2scale_cast_from_fp8, which gives float16 or float32."
        )
    check_log2_scale(log2_scale)
    check_operands(t=t, log2_scale=log2_scale)
    if not t.dtype._is_float8:
        raise TypeError(f"t must be of a float8 type, got {t.dtype}.")
    out = like(t, f"{t.name}_{data_type._name}", data_type)
    return result(create("CastThenPow2Scale", [t, log2_scale], [out], {"to": data_type}))


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
        raise ValueError(f"Unknown init_type: {init_type}")
    gcg()
    dims = checked_shape(shape)
    out = Out(name or "t", dims, dtype, checked_shape(meta_shape or ()))
    return result(create("Init", [], [out], {"shape": dims, "dtype": dtype}, options={"init_type": init_type}))
