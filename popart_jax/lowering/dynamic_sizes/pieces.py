"""Padded axes that are joined or sliced: the valid entries move to the front, and padding stays behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from ...ops.join import from_front, sliced_axes
from ...ops.select import BEYOND
from .padded import Padded, masked, refusal

Made = tuple[tuple[Any, ...], list[Padded]]


def computed(node: ir.Node, operands: list[Any], marks: Mapping[int, Padded], compute: Any) -> Made | None:
    """Results of a Concat or Slice along the padded axis, with their marks; None for other nodes."""
    match node.op_type:
        case "Concat":
            return _joined(node, operands, marks, compute)
        case "Slice" if set(marks) == {0} and len(operands) > 2:
            return _sliced(operands, marks[0], compute)
        case _:
            return None


def _joined(node: ir.Node, operands: list[Any], marks: Mapping[int, Padded], compute: Any) -> Made | None:
    rank = np.ndim(operands[0])
    axis = rank - node.attributes.get_int("axis", 0) % rank
    if axis not in {m.axis for m in marks.values()}:
        return None
    if any(m.axis != axis for m in marks.values()):
        raise popart_exception(refusal(node.op_type, next(m for m in marks.values() if m.axis != axis)))
    (made,) = compute(operands)
    ones = [np.ones(np.shape(x)[-axis], bool) for x in operands]
    live = jnp.concatenate([marks[i].live if i in marks else one for i, one in enumerate(ones)])
    if set(marks) != {len(operands) - 1}:  # padding lies before valid entries
        made = jnp.take(made, jnp.argsort(~live, stable=True), axis=-axis)
        live = jnp.arange(live.size) < jnp.count_nonzero(live)
    first = next(iter(marks.values()))
    return (made,), [replace(first, index=all(m.index for m in marks.values()), live=live)]


def _sliced(operands: Sequence[Any], mark: Padded, compute: Any) -> Made | None:
    given: list[Any] = [*operands, None, None]
    x, starts, ends, axes, steps = given[:5]
    along = sliced_axes(starts, axes, np.ndim(x))
    if np.ndim(x) - mark.axis not in along:
        return None
    place = along.index(np.ndim(x) - mark.axis)
    step = 1 if steps is None or not np.size(steps) else int(steps[place])
    if step < 1:
        raise popart_exception(refusal("Slice with a negative step", mark))
    size = int(mark.live.size)
    start, end = (int(np.clip(bound[place], -size, size)) for bound in (starts, ends))
    whole = [np.where(np.arange(len(along)) == place, all_of_it, given) for given, all_of_it in _whole(operands, size)]
    (made,) = compute([x, *whole[:2], *operands[3:4], *whole[2:]])
    count = jnp.count_nonzero(mark.live)
    first, last = from_front(start, count), from_front(end, count)
    length = max(-(-_longest(start, end, size) // step), 2)  # an axis of size 1 could not be told from others
    made = jnp.take(made, jnp.minimum(first + step * jnp.arange(length), size - 1), axis=-mark.axis)
    kept = replace(mark, live=step * jnp.arange(length) < last - first)
    return (masked(made, kept, BEYOND) if mark.index else made,), [kept]


def _whole(operands: Sequence[Any], size: int) -> list[tuple[Any, int]]:
    """Starts, ends and steps, each with the number that leaves an axis of this size whole."""
    steps = operands[4] if len(operands) > 4 else None
    return [(operands[1], 0), (operands[2], size), *([] if steps is None or not np.size(steps) else [(steps, 1)])]


def _longest(start: int, end: int, size: int) -> int:
    """Most elements from start to end of an axis that has up to `size` of them; negative ones count from its end."""
    if start < 0:
        return min(-start, end) if end >= 0 else end - start
    return min(end, size) - start if end >= 0 else size + end - start
