"""Sequences (Python lists) and optionals (None when empty)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import popart_exception
from .arrays import Array, device_dtype, dtype_name, namespace, normal_axis
from .operator import MOVES_DATA, WIDE_RESULT, operator
from .registry import Static, Subgraph, lowers

Sequence = list[Any]


def _position(position: Any, length: int, room: int = 0) -> int:
    """Place in a sequence from the front; `room` 1 allows the place after the last."""
    if np.size(position) != 1:  # PyTorch writes a vector of one number
        raise popart_exception(f"a position in a sequence is one number, not {np.size(position)}")
    at = int(np.asarray(position).reshape(()))
    if not -length <= at < length + room:
        raise popart_exception(f"sequence position {at} is outside [{-length}, {length - 1 + room}]")
    return at + length if at < 0 else at


@lowers("SequenceConstruct", 11)
def sequence_construct(*xs: Any) -> Sequence:
    return list(xs)


@lowers("SequenceEmpty", 11)
def sequence_empty(*, dtype: int = 1) -> Sequence:
    return []


operator("SequenceLength", WIDE_RESULT)


@lowers("SequenceLength", 11)
def sequence_length(xs: Sequence, /) -> np.ndarray:
    return np.asarray(len(xs), np.int64)


@lowers("SequenceAt", 11)
def sequence_at(xs: Sequence, position: Static, /) -> Any:
    return xs[_position(position, len(xs))]


@lowers("SequenceInsert", 11)
def sequence_insert(xs: Sequence, x: Any, position: Static = None, /) -> Sequence:
    at = len(xs) if position is None else _position(position, len(xs), 1)
    if xs and hasattr(x, "dtype") and device_dtype(x.dtype) != device_dtype(xs[0].dtype):
        raise popart_exception(f"a tensor of type {dtype_name(x)} in a sequence of {dtype_name(xs[0])}")
    return [*xs[:at], x, *xs[at:]]


@lowers("SequenceErase", 11)
def sequence_erase(xs: Sequence, position: Static = None, /) -> Sequence:
    at = len(xs) - 1 if position is None else _position(position, len(xs))
    return [*xs[:at], *xs[at + 1 :]]


operator("ConcatFromSequence", MOVES_DATA)


@lowers("ConcatFromSequence", 11)
def concat_from_sequence(xs: Sequence, /, *, axis: int, new_axis: int = 0) -> Array:
    xp = namespace(*xs)
    return xp.stack(xs, axis) if new_axis else xp.concatenate(xs, axis)


operator("SplitToSequence", MOVES_DATA)


@lowers("SplitToSequence", 11)
def split_to_sequence(x: Array, split: Static = None, /, *, axis: int = 0, keepdims: int = 1) -> Sequence:
    """Pieces of the given sizes; a scalar size repeats, without sizes every piece is 1 and may lose the axis."""
    along = normal_axis(axis, x.ndim)
    size = x.shape[along]
    step = 1 if split is None else int(split) if np.ndim(split) == 0 else None
    if step == 0 or np.min(0 if split is None else split, initial=0) < 0:
        raise popart_exception(f"SplitToSequence: parts of {np.asarray(split).tolist()} elements")
    ends = np.cumsum(np.asarray(split)) if step is None else np.asarray([*range(step, size, step), size])
    if len(ends) and ends[-1] != size:
        raise popart_exception(f"SplitToSequence: sizes {np.asarray(split).tolist()} do not add up to {size}")
    index = [slice(None)] * x.ndim
    pieces: Sequence = []
    start = 0
    for end in ends.tolist():
        index[along] = slice(start, end)
        piece = x[tuple(index)]
        drop = split is None and not keepdims
        pieces.append(piece.reshape([d for i, d in enumerate(piece.shape) if i != along]) if drop else piece)
        start = end
    return pieces


@lowers("SequenceMap", 17)
def sequence_map(xs: Sequence, *others: Any, body: Subgraph) -> Any:
    """The body on every element; other sequences advance alongside, tensors stay."""
    passes = [body(x, *(o[i] if isinstance(o, list) else o for o in others), iteration=i) for i, x in enumerate(xs)]
    columns: Iterable[Iterable[Any]] = zip(*passes, strict=True) if passes else ([] for _ in range(body.n_outputs))
    return tuple(list(column) for column in columns)


@lowers("Optional", 15)
def optional(x: Any = None, /, *, type: Any = None) -> Any:
    return x


@lowers("OptionalHasElement", 15)
def optional_has_element(x: Any = None, /) -> np.ndarray:
    return np.asarray(x is not None, bool)


@lowers("OptionalGetElement", 15)
def optional_get_element(x: Any, /) -> Any:
    if x is None:
        raise popart_exception("OptionalGetElement: the optional holds nothing")
    return x
