"""Slices and ranges that begin where only the running program knows, with a length that is known before.

Of ``x[:, i] = v`` in a loop, exporters make a Slice from i to min(size, i + 1) and a Range over the same numbers. Both
ends follow from one number, so their difference is known while tracing. A run in which the end is cut off would need
another shape: it is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ..._compat.jax import Tracer
from ...ops.join import sliced_axis
from ...ops.stopping import unless
from ...ops.symbols import KEEPS, is_symbol
from ..static import Walk, from_constants, is_static, lookup
from .bounds import SIZE

_KINDS = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE})
_EXACT = 1 << 24
"""Whole numbers below stay whole as float32."""


@dataclass(frozen=True)
class Place:
    """A number as another one plus a constant, and at most `most`; `floats` if it was a float in between."""

    base: ir.Value
    offset: int = 0
    most: int | None = None
    floats: bool = False


def place_of(value: ir.Value, walk: Walk) -> Place:
    """What a number of one element follows from, by additions and minima of constants."""
    offset, most, floats = 0, None, False
    while (node := value.producer()) is not None and node.domain in ("", "ai.onnx"):
        first = node.inputs[0] if node.inputs else None
        if first is None:
            break
        if node.op_type == "Cast" and (kind := ir.DataType(node.attributes.get_int("to", 0))) in _KINDS:
            floats, value = floats or kind.is_floating_point(), first
            continue
        if node.op_type in KEEPS:
            value = first
            continue
        if node.op_type not in ("Add", "Sub", "Min") or len(node.inputs) != 2:
            break
        sides = [(v, None if v is None else _number(_known(v, walk))) for v in node.inputs]
        unknown = [v for v, number in sides if number is None]
        numbers = [number for _, number in sides if number is not None]
        if len(numbers) != 1 or unknown[0] is None or (node.op_type == "Sub" and unknown[0] is not first):
            break
        if node.op_type == "Min":
            most = numbers[0] + offset if most is None else min(most, numbers[0] + offset)
        else:
            offset += numbers[0] if node.op_type == "Add" else -numbers[0]
        value = unknown[0]
    return Place(value, offset, most, floats)


def _known(value: ir.Value, walk: Walk) -> Any:
    """The value as it was computed, or, where nobody reads it any more, from what it followed."""
    found = lookup(walk, value)
    return from_constants(walk, value) if found is None else found


def _number(x: Any) -> int | None:
    """The whole number that an array known while tracing holds; None for anything else."""
    if x is None or not is_static(x) or np.size(x) != 1:
        return None
    array = np.asarray(x)
    number: Any = array.item()
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
    given: list[Any] = [*operands, None, None]
    x, starts, ends, axes, steps = given[:5]
    one = np.size(starts) == np.size(ends) == 1 and (steps is None or _number(steps) == 1)
    if not one or not is_static(axes):
        return None
    axis, found = sliced_axis(axes, x.ndim), _interval(node.inputs[1], node.inputs[2], walk)
    size = x.shape[axis]
    if found is None or is_symbol(size) or found[0] > size:
        return None
    length, most = found
    start, last = jnp.asarray(starts).reshape(()), size if most is None else min(most, size)
    made = lax.dynamic_slice_in_dim(x, start, length, axis)
    return _stopped((start < 0) | (start > last - length), node, length, f"0 and {last}", made)


def _ranged(node: ir.Node, operands: list[Any], walk: Walk) -> tuple[Any, ...] | None:
    start, _, step = operands
    found = _interval(node.inputs[0], node.inputs[1], walk)
    if found is None or _number(step) != 1 or not jnp.issubdtype(start.dtype, jnp.integer):
        return None
    length, most = found
    first = jnp.asarray(start).reshape(())
    made = first + jnp.arange(length, dtype=first.dtype)
    return (made,) if most is None else _stopped(first > most - length, node, length, f"the end at {most}", made)


def _interval(start: ir.Value | None, end: ir.Value | None, walk: Walk) -> tuple[int, int | None] | None:
    """Length of an interval of numbers, and the largest end that it may have; None where the length is not known."""
    if start is None or end is None:
        return None
    first, last = place_of(start, walk), place_of(end, walk)
    if first.base is not last.base or not _is_whole(first.base, walk):
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
