"""Concatenating, splitting, slicing and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._compat.jax import Tracer
from ..errors import OpError, popart_exception
from ..limits import limits
from .arrays import Array, device_dtype, listed, namespace, normal_axes, normal_axis
from .moving import moves_texts
from .operator import FOLDS, MOVES_DATA, MOVES_ROWS, NEEDS_VALUE, VIEW_CHANGE, PopxlClass, as_onnx, gradient, operator
from .options import DEFAULTS
from .registry import Bound, Fill, Options, OutputCount, Static, lowers
from .symbols import as_size, clamped, is_symbol

operator(
    "Concat",
    VIEW_CHANGE | MOVES_DATA | FOLDS | MOVES_ROWS,
    gradients=gradient(of=None, traits=VIEW_CHANGE),
    view=True,
    batch="along axis",
    popxl=as_onnx(11, runs=13),
)


@lowers("Concat", 4)
def concat(*xs: Array, axis: int) -> Array:
    if len({device_dtype(x.dtype) for x in xs}) > 1:
        raise OpError("All input tensor types to a concat operation must be equal. This is for op {Op}", "Concat")
    along = normal_axis(axis, np.ndim(xs[0]), "Attribute 'axis' of ConcatOp, {}, is outside of acceptable range")
    check_concat([np.shape(x) for x in xs], axis, along)
    return namespace(*xs).concatenate(xs, along)


def check_concat(shapes: Sequence[Sequence[Any]], axis: int, along: int) -> None:
    """Raise popart_exception where operands of a concatenation along `along` differ in rank or in another dimension.

    `axis` is `along` as the node has it, for the text.
    """
    first = shapes[0]
    for i, shape in enumerate(shapes):
        if len(shape) != len(first):
            raise popart_exception(
                f"Input {i} of {len(shapes)} to concat does not have matching output rank. Input {i} has rank "
                f"{len(shape)} ({listed(shape)}) while the output has rank {len(first)} ({listed(first)}).Concat axis "
                f"{axis}."
            )
        if [d for j, d in enumerate(shape) if j != along] != [d for j, d in enumerate(first) if j != along]:
            raise popart_exception(f"Input {i} to concat does not have matching shape. {' '.join(map(listed, shapes))}")


@lowers("Concat", 1)
def concat_1(*xs: Array, axis: int = 1) -> Array:
    return concat(*xs, axis=axis)


def split_at(x: Array, sizes: Sequence[int] | None, parts: int, axis: int, even: bool = True) -> tuple[Array, ...]:
    """Consecutive pieces of `x`; without sizes equal parts, the last one smaller if that is allowed (not `even`)."""
    op = "Split"
    if axis >= x.ndim:
        raise popart_exception(f"Axis {axis} is out of range for tensor with {x.ndim} dims")
    if axis < -x.ndim:
        raise OpError(f"Split op input tensor {{0}}, rank {x.ndim}, axis {axis} is out of range", op)
    along = axis % x.ndim
    size = x.shape[along]
    if sizes is None:
        if even and size % parts:
            shape = listed(x.shape)
            raise OpError(
                f"Tensor {{0}} ({shape}) may not be split into equally sized parts along axis {axis}", "Split"
            )
        chunk = -(-size // parts)
        sizes = [chunk] * (parts - 1) + [size - chunk * (parts - 1)]
    if len(sizes) != parts:
        raise popart_exception("Number of outputs does not match number of requested splits")
    if sum(sizes) != size or min(sizes) < 0:
        raise popart_exception(f"splits {sum(sizes)} invalid for dimension of size {size}")
    ends = np.cumsum(sizes).tolist()
    index = [slice(None)] * x.ndim
    pieces: list[Array] = []
    for end, length in zip(ends, sizes, strict=True):
        index[along] = slice(end - length, end)
        pieces.append(x[tuple(index)])
    return tuple(pieces)


operator(
    "Split",
    MOVES_DATA | MOVES_ROWS,
    gradients=gradient(removed_by="SplitGradOpToConcat"),
    batch="along axis",
    ranks="split 1",
    parameters={1: "split"},
    popxl=as_onnx(2, runs=2),
)


@lowers("Split", 18)
def split(
    x: Array, split: Static = None, /, *, axis: int = 0, num_outputs: int | None = None, count: OutputCount = 1
) -> Any:  # fmt: skip
    if (split is None) == (num_outputs is None):
        raise popart_exception("Split: either the input split or the attribute num_outputs must be given")
    return popart_split(x, split, axis=axis, num_outputs=num_outputs, count=count)


@lowers("Split", 18, popart=True)
def popart_split(
    x: Array, split: Static = None, /, *, axis: int = 0, num_outputs: int | None = None, count: OutputCount = 1
) -> Any:  # fmt: skip
    """Without sizes and number, one part for each output."""
    sizes = None if split is None else np.asarray(split).tolist()
    return split_at(x, sizes, len(sizes) if sizes is not None else num_outputs or count, axis, even=False)


@lowers("Split", 13)
def split_13(x: Array, split: Static = None, /, *, axis: int = 0, count: OutputCount = 1) -> Any:
    return split_at(x, None if split is None or not np.size(split) else np.asarray(split).tolist(), count, axis)


@lowers("Split", 2)
def split_2(x: Array, /, *, axis: int = 0, split: Sequence[int] | None = None, count: OutputCount = 1) -> Any:
    return split_at(x, split or None, count, axis)


@lowers("Split", 1)
def split_1(
    x: Array, sizes: Static = None, /, *, axis: int = 0, split: Sequence[int] | None = None, count: OutputCount = 1
) -> Any:  # fmt: skip
    return split_at(x, split or (None if sizes is None else np.asarray(sizes).tolist()), count, axis)


operator(
    "Slice",
    VIEW_CHANGE | MOVES_DATA | FOLDS | MOVES_ROWS,
    gradients="g",
    view=True,
    ranks="starts 1 ends 1 axes 1 steps 1",
    parameters={1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    popxl=PopxlClass(version=11, runs=("ai.graphcore", 1)),
    not_constant=NEEDS_VALUE,
)


@lowers("Slice", 10, popart=True)
def slice_(
    x: Array, starts: Static, ends: Static, axes: Static = None, steps: Static = None, /, *,
    options: Options = DEFAULTS,
) -> Array:  # fmt: skip
    """Bounds are clamped, negative ones count from the end; going backwards, a start before the data means index 0."""
    if steps is not None and np.any(np.abs(steps) > 1) and not options.subsamples_slices:
        wide = next(int(s) for s in steps if abs(s) > 1)
        raise OpError(
            f"Please enable pattern \"Slice2SliceSubsample\" first. Invalid 'step' value, {wide}, in "
            "BaseSliceOp::getSlices. Only steps of '1' or '-1' are supported. This error is for Op {op}.",
            "Slice",
        )
    along = sliced_axes(starts, axes, x.ndim)
    steps = np.ones(len(starts), np.int64) if steps is None or not np.size(steps) else steps
    index = [slice(None)] * x.ndim
    if not len(starts) == len(ends) == len(along) == len(steps):
        lengths = [len(starts), len(ends), len(along), len(steps)]
        raise popart_exception(f"Slice: starts, ends, axes and steps must be equally long, got {lengths}")
    if len(starts) > x.ndim:
        raise popart_exception(f"Slice: {len(starts)} starts for {x.ndim} dimensions")
    for axis, start, end, step in zip(along, starts, ends, steps, strict=False):
        if step == 0:
            raise popart_exception(f"Slice: step 0 on axis {axis}")
        index[axis] = _bounds(as_size(start), as_size(end), int(step), x.shape[axis])
    return x[tuple(index)]


def sliced_axes(starts: Any, axes: Any, rank: int) -> tuple[int, ...]:
    """The axes of a Slice: the first ones where none are given."""
    if axes is None or not np.size(axes):
        return tuple(range(len(starts)))
    for axis in np.ravel(axes).tolist():
        if axis < -rank:
            raise OpError(f"slice op input tensor {{0}}, rank {rank}, axis {axis} is out of range", "Slice")
        if axis >= rank:
            raise OpError(
                f"Invalid input shape in BaseSliceOp::getSlices. The input shape has rank {rank}, but axis = {axis}. "
                "axis must be less than the input shape's rank. This error is for Op {op}.",
                "Slice",
            )
    return normal_axes(axes, rank)


def _bounds(start: int, end: int, step: int, size: int) -> slice:
    """The slice by ONNX's clamping, which for negative steps differs from NumPy's."""
    start, end = (v + size if not is_symbol(v) and v < 0 else v for v in (start, end))
    step = step if is_symbol(size) or not size else max(-size, min(step, size))
    if step > 0:
        return slice(clamped(start, size), clamped(end, size), step)
    first, last = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(first, last if last >= 0 else None, step) if size else slice(0, 0)


@lowers("Slice", 10)
def slice_to_any_end(
    x: Array, starts: Static, ends: Static, axes: Static = None, steps: Static = None, /, *,
    options: Options = DEFAULTS, bound: Bound = None, fill: Fill = None,
) -> Array:  # fmt: skip
    """A bound is the largest length along the one axis; what is behind the end is filled up."""
    if bound is None:
        return slice_(x, starts, ends, axes, steps, options=options)
    if np.size(starts) != 1 or np.size(ends) != 1 or (steps is not None and np.any(np.asarray(steps) != 1)):
        raise popart_exception("Slice: where ends are known at run time only, it takes one axis, and steps of 1")
    axis = sliced_axis(axes, x.ndim)
    size = x.shape[axis]
    first, last = (from_front(v, size) for v in (starts, ends))
    at = first + jnp.arange(bound, dtype=jnp.int32)
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    kept = jnp.take(x, jnp.clip(at, 0, max(size - 1, 0)), axis)
    return jnp.where((at < last).reshape(shape), kept, jnp.asarray(fill or 0, x.dtype))


def sliced_axis(axes: Any, rank: int) -> int:
    """The axis of a Slice along one: the first where none is given."""
    return sliced_axes((0,), axes, rank)[0]


def from_front(bound: Any, size: Any) -> Any:
    """A start or end as a number of elements from the front, inside of the axis."""
    given = jnp.clip(jnp.reshape(bound, ()), -size, size).astype(jnp.int32)
    return jnp.where(given < 0, given + size, given)


@lowers("Slice", 1)
def slice_1(x: Array, /, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None) -> Array:
    return slice_(x, np.asarray(starts), np.asarray(ends), None if axes is None else np.asarray(axes))


def pad_all(x: Array, pads: Sequence[int], value: Any, mode: str) -> Array:
    """Pad by begins then ends, one per dimension; negative numbers cut off.

    Raises popart_exception for a wrong number of pads, an unknown mode, or a reflection wider than the data.
    """
    rank = np.ndim(x)
    if len(pads) != 2 * rank:
        raise OpError(
            f"Failure in BasePadOp::runtimeConfirmShapes, for {{op}}. This with pads of size {len(pads)}, and input "
            f"tensor of rank {rank}. Expected pads to be exactly 2x the unput Tensor's rank. ",
            "Pad",
        )
    pairs = [(int(lo), int(hi)) for lo, hi in zip(pads[:rank], pads[rank:], strict=True)]
    if any(lo + hi + d < 0 for (lo, hi), d in zip(pairs, np.shape(x), strict=True)):
        raise popart_exception(f"Pad: pads {list(pads)} cut off more than shape {list(np.shape(x))} has")
    if mode == "constant":
        fill = jnp.zeros((), x.dtype) if value is None else jnp.asarray(value, x.dtype).reshape(())
        return lax.pad(jnp.asarray(x), fill, [(lo, hi, 0) for lo, hi in pairs])
    if mode not in ("reflect", "edge", "wrap"):
        raise popart_exception(f"Pad: unknown mode {mode!r}; constant, reflect, edge and wrap are known")
    kept = x[tuple(slice(max(-lo, 0), d - max(-hi, 0)) for (lo, hi), d in zip(pairs, x.shape, strict=True))]
    added = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
    if all(lo + hi <= _FEW_COPIES * d for (lo, hi), d in zip(added, kept.shape, strict=True)):
        return namespace(x).pad(kept, added, mode=mode)
    shape = [d + lo + hi for d, (lo, hi) in zip(kept.shape, added, strict=True)]
    limits.check_size(shape, x.dtype.itemsize, "Pad: a result")
    for axis, (lo, hi) in enumerate(added):
        kept = kept.take(_source(kept.shape[axis], lo, hi, mode), axis)
    return kept


_FEW_COPIES = 8
"""Copies of the data that `pad` puts side by side; it makes them one by one."""


def _source(size: int, low: int, high: int, mode: str) -> np.ndarray:
    """For each index of a padded dimension, the index of the source element that it copies."""
    if not size and low + high:
        raise popart_exception(f"Pad: there is nothing to {mode} in a dimension of size 0")
    at = np.arange(-low, size + high)
    if mode == "edge":
        return at.clip(0, size - 1)
    if mode == "wrap":
        return at % max(size, 1)
    back = max(2 * (size - 1), 1)
    return np.minimum(at % back, back - at % back)


operator("Pad", gradients="g", ranks="pads 1 axes 1", parameters={1: "pads"})


@lowers("Pad", 11)
@moves_texts
def pad(x: Array, pads: Static, value: Array | None = None, axes: Static = None, /, *, mode: str = "constant") -> Array:
    pads = np.asarray(pads).reshape(-1)
    if axes is not None:
        if pads.size != 2 * np.size(axes):
            raise popart_exception(f"Pad: {pads.size} pads for {np.size(axes)} axes; expected two per axis")
        full = np.zeros((2, x.ndim), np.int64)
        full[:, list(normal_axes(axes, x.ndim))] = pads.reshape(2, -1)
        pads = full.reshape(-1)
    return pad_all(x, pads.tolist(), value, mode)


@lowers("Pad", 2)
def pad_2(x: Array, /, *, pads: Sequence[int], value: float = 0.0, mode: str = "constant") -> Array:
    return pad_all(x, pads, value, mode)


@lowers("Pad", 1)
def pad_1(x: Array, /, *, paddings: Sequence[int], value: float = 0.0, mode: str = "constant") -> Array:
    return pad_all(x, paddings, value, mode)


operator("ReverseSequence", ranks="input 2+ sequence_lens 1")


@lowers("ReverseSequence", 10)
@moves_texts
def reverse_sequence(x: Array, lengths: Array, /, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """The first `lengths[b]` steps of every batch entry in opposite order."""
    if sorted((batch_axis, time_axis)) != [0, 1]:
        raise popart_exception(f"ReverseSequence: batch_axis {batch_axis} and time_axis {time_axis} must be 0 and 1")
    batch, steps = x.shape[batch_axis], x.shape[time_axis]
    known = np.zeros(0) if isinstance(lengths, Tracer) else np.asarray(lengths)
    if lengths.shape != (batch,) or np.any(known < 0) or np.any(known > steps):
        raise popart_exception(f"ReverseSequence: expected {batch} lengths of 0 to {steps}, got {lengths}")
    moved = jnp.moveaxis(x, (time_axis, batch_axis), (0, 1))
    step = jnp.arange(moved.shape[0])[:, None]
    order = jnp.where(step < lengths, lengths - 1 - step, step)
    order = order.reshape(order.shape + (1,) * (moved.ndim - 2))
    return jnp.moveaxis(jnp.take_along_axis(moved, order, 0), (0, 1), (time_axis, batch_axis))


operator("Trilu", ranks="input 2+")


@lowers("Trilu", 14)
@moves_texts
def trilu(x: Array, k: Array | None = None, /, *, upper: int = 1) -> Array:
    """Upper or lower triangle; `k` may be a run-time value."""
    offset = 0 if k is None else jnp.reshape(k, ())
    below = jnp.arange(x.shape[-1]) - jnp.arange(x.shape[-2])[:, None]
    return jnp.where(below >= offset if upper else below <= offset, x, jnp.zeros_like(x))


@lowers("TensorScatter", 24)
@moves_texts
def tensor_scatter(
    cache: Array, update: Array, at: Array | None = None, /, *, axis: int = -2, mode: str = "linear"
) -> Array:
    """Write `update` along the sequence axis of `cache`, each batch entry at its own index."""
    if mode not in ("linear", "circular"):
        raise popart_exception(f"TensorScatter: mode must be linear or circular, got {mode!r}")
    along = normal_axis(axis, cache.ndim)
    longest, batch = cache.shape[along], cache.shape[0]
    last = longest - update.shape[along] if mode == "linear" else np.iinfo(np.int64).max
    if at is not None and not isinstance(at, Tracer) and not np.all((np.asarray(at) >= 0) & (np.asarray(at) <= last)):
        raise popart_exception(f"TensorScatter: write_indices {np.asarray(at).tolist()} are outside [0, {last}]")
    start = jnp.zeros(batch, jnp.int32) if at is None else jnp.asarray(at)
    where = (start[:, None] + jnp.arange(update.shape[along])) % longest if mode == "circular" else (
        start[:, None] + jnp.arange(update.shape[along]))  # fmt: skip
    old, new = jnp.moveaxis(cache, along, 1), jnp.moveaxis(update, along, 1)
    return jnp.moveaxis(jnp.asarray(old).at[jnp.arange(batch)[:, None], where].set(new), 1, along)
