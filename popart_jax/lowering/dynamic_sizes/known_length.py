"""Slices and ranges that begin where only the running program knows, with a length that is known before.

Of ``x[:, i] = v`` in a loop, exporters make a Slice from i to min(size, i + 1) and a Range over the same numbers. Both
ends follow from one number, so their difference is known while tracing. ``jax.lax.dynamic_slice`` is a Slice along
several axes, whose starts are joined from such numbers and constants. A run in which the end is cut off would need
another shape: it is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ..._compat.jax import Tracer
from ...ops.join import sliced_axes
from ...ops.stopping import unless
from ...ops.symbols import KEEPS, is_symbol
from ..static import Walk, from_constants, is_static, lookup
from .bounds import SIZE

_KINDS = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE})
_EXACT = 1 << 24
"""Whole numbers below stay whole as float32."""


@dataclass(frozen=True)
class Place:
    """A number as element `at` of `base`, 0 if that is None, plus a constant; `floats` if it was one in between."""

    base: ir.Value | None
    at: int = 0
    offset: int = 0
    most: int | None = None
    """It is cut off here."""
    floats: bool = False

    @property
    def number(self) -> int | None:
        """The number itself if it is known while tracing."""
        known = self.offset if self.most is None else min(self.offset, self.most)
        return known if self.base is None else None


def place_of(value: ir.Value, walk: Walk, at: int = 0) -> Place:
    """What element `at` of a list of numbers follows from, by additions and minima of constants, and by joins."""
    offset, most, floats = 0, None, False
    while (known := _number(_known(value, walk), at)) is None:
        node = value.producer()
        first = None if node is None or not node.inputs else node.inputs[0]
        if node is None or first is None or node.domain not in ("", "ai.onnx"):
            break
        if node.op_type == "Cast" and (kind := ir.DataType(node.attributes.get_int("to", 0))) in _KINDS:
            floats, value = floats or kind.is_floating_point(), first
            continue
        if node.op_type in KEEPS:
            value = first
            continue
        if node.op_type == "Concat" and (part := _joined(node, walk, at)) is not None:
            value, at = part
            continue
        if node.op_type not in ("Add", "Sub", "Min") or len(node.inputs) != 2:
            break
        other, number = node.inputs[1], None if node.inputs[1] is None else _number(_known(node.inputs[1], walk), at)
        if number is None and node.op_type != "Sub":
            first, other, number = other, first, _number(_known(first, walk), at)
        size = None if first is None else _size(first, walk)
        if number is None or first is None or (size is None and at):
            break
        if node.op_type == "Min":
            most = number + offset if most is None else min(most, number + offset)
        else:
            offset += number if node.op_type == "Add" else -number
        value, at = first, 0 if size == 1 else at  # a single number is broadcast
    return Place(value, at, offset, most, floats) if known is None else Place(None, 0, offset + known, most, floats)


def _joined(node: ir.Node, walk: Walk, at: int) -> tuple[ir.Value, int] | None:
    """The list that element `at` of joined lists comes from, and its place there; None where sizes are not known."""
    total = _size(node.outputs[0], walk)
    for value in node.inputs:
        size = None if value is None else 1 if total == len(node.inputs) else _size(value, walk)
        if value is None or size is None or total is None:
            return None
        if at < size:
            return value, at
        at -= size
    return None


def _size(value: ir.Value, walk: Walk) -> int | None:
    """How many numbers a list or a single number holds; None for other shapes, and where nobody knows."""
    found, node = _known(value, walk), value.producer()
    shape = value.shape if found is None else np.shape(found)
    if shape is None and node is not None and node.op_type in ("Add", "Sub", "Min", "Cast"):
        sizes = [_size(v, walk) for v in node.inputs if v is not None]
        known = [size for size in sizes if size is not None]
        return max(known) if known and len(known) == len(sizes) else None
    counts: list[Any] | None = None if shape is None else [*shape, 1]
    return counts[0] if counts and len(counts) <= 2 and isinstance(counts[0], int) else None


def _known(value: ir.Value, walk: Walk) -> Any:
    """The value as it was computed, or, where nobody reads it any more, from what it followed."""
    found = lookup(walk, value)
    return from_constants(walk, value) if found is None else found


def _number(x: Any, at: int = 0) -> int | None:
    """Element `at`, or the only one, of an array known while tracing if it is whole; None for anything else."""
    if x is None or not is_static(x) or (size := np.size(x)) == 0:
        return None
    array = np.ravel(x)
    number: Any = array[min(at, size - 1)].item()
    return int(number) if array.dtype.kind in "iuf" and float(number).is_integer() else None


def computed(node: ir.Node, operands: list[Any], walk: Walk) -> tuple[Any, ...] | None:
    """The result of such a Slice or Range; None for other nodes, and where the user gave a bound."""
    match node.op_type:
        case "Slice" if len(operands) >= 3 and isinstance(operands[1], Tracer):
            rule = _sliced
        case "Range" if isinstance(operands[0], Tracer):
            rule = _ranged
        case _:
            return None
    bounded = SIZE in node.attributes or any(v in walk.padded for v in node.inputs)
    return None if bounded else rule(node, operands, walk)


def _sliced(node: ir.Node, operands: list[Any], walk: Walk) -> tuple[Any, ...] | None:
    """One axis after the other."""
    given: list[Any] = [*operands, None, None]
    made, starts, ends, axes, steps = given[:5]
    unit = steps is None or (is_static(steps) and np.all(np.asarray(steps) == 1))
    if np.size(starts) != np.size(ends) or not unit or not is_static(axes):
        return None
    for at, axis in enumerate(sliced_axes(starts, axes, made.ndim)):
        size, places = made.shape[axis], [place_of(v, walk, at) for v in node.inputs[1:3] if v is not None]
        if is_symbol(size):
            return None
        if all(p.number is not None for p in places):
            first, last, _ = slice(*(p.number for p in places)).indices(size)
            made = lax.slice_in_dim(made, first, max(first, last), axis=axis)
            continue
        found = _interval(places, walk)
        if found is None or found[0] > size:
            return None
        length, most = found
        start, last = jnp.ravel(starts)[at], size if most is None else min(most, size)
        part = lax.dynamic_slice_in_dim(made, start, length, axis)
        (made,) = _stopped((start < 0) | (start > last - length), node, length, f"0 and {last}", part)
    return (made,)


def _ranged(node: ir.Node, operands: list[Any], walk: Walk) -> tuple[Any, ...] | None:
    start, _, step = operands
    found = _interval([place_of(v, walk) for v in node.inputs[:2] if v is not None], walk)
    if found is None or _number(step) != 1 or not jnp.issubdtype(start.dtype, jnp.integer):
        return None
    length, most = found
    first = jnp.asarray(start).reshape(())
    made = first + jnp.arange(length, dtype=first.dtype)
    return (made,) if most is None else _stopped(first > most - length, node, length, f"the end at {most}", made)


def _interval(places: Sequence[Place], walk: Walk) -> tuple[int, int | None] | None:
    """Length between two numbers, and the largest that the second may be; None where the length is not known."""
    first, last = places
    if (first.base, first.at) != (last.base, last.at) or first.base is None or not _is_whole(first.base, walk):
        return None
    length = last.offset - first.offset
    exact = not (first.floats or last.floats) or (last.most is not None and last.most < _EXACT)
    return (length, last.most) if length > 0 and first.most is None and exact else None


def _is_whole(value: ir.Value, walk: Walk) -> bool:
    found = lookup(walk, value)
    if found is None:  # nobody reads it any more
        return value.dtype is not None and value.dtype.is_integer()
    return jnp.issubdtype(found.dtype, jnp.integer)


def _stopped(outside: Any, node: ir.Node, length: int, bounds: str, made: Any) -> tuple[Any, ...]:
    """The result, unless the run must be stopped."""
    reason = (
        f"{node.op_type} node '{node.name or ''}' has {length} elements from a start that only the run knows, and this "
        f"one leaves {bounds}: a compiled program can't make it shorter."
    )
    return unless(outside, reason, (made,))
