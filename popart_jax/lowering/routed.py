"""Rows chosen while the program runs: their number is bounded by a shape, and what fills it up must not be seen.

A NonZero of a tensor of n elements finds at most n. Inside a trace its result has that size, and what is left over is
an index beyond every tensor, which writes drop; Compress, Unique and NonMaxSuppression likewise. Each value made of
such a result is marked with the axis that is too long and with what was found along it. Reductions over that axis count
what was found, and so do its size and what is computed from that; a node that would let the surplus be seen otherwise
(an output, a subgraph) is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from ..ops.registry import Lowering, facts
from ..ops.select import BEYOND
from . import counted, neutral
from .axes_of_surplus import ARITHMETIC, READS, axis_of, moves
from .surplus import Counted, Surplus, refusal

Mark = Surplus | Counted
Marks = Mapping[int, Mark]
"""Marked operands of a node by position."""
Compute = Callable[..., tuple[Any, ...]]
"""The results of the node from other operands, and from other attributes given as keywords."""

_WRITES = frozenset({"ScatterND", "ScatterElements", "Scatter"})


def followed(node: ir.Node, operands: Sequence[Any], results: Sequence[Any], marks: Marks) -> list[Mark | None]:
    """Marks of the results of a node that reads positions of a given bound: those that only move them keep theirs."""
    given = cast("Mapping[int, Surplus]", marks)
    shapes = [np.shape(x) for x in operands]
    axis = axis_of(node, shapes, np.shape(results[0]), given) if moves(node.op_type) else 0
    return [Surplus(axis, index=True, given=True) if axis else None] * len(results)


def cleared(node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...], marks: Marks) -> tuple[Any, ...]:
    """What a node reads, with zeros where the position is the filling of a given bound."""
    if node.op_type not in READS or 1 not in marks:
        return results
    (found,), (data, index) = results, operands
    beyond = jnp.asarray(index) == BEYOND
    if node.op_type == "GatherND":
        beyond = beyond.any(-1)
    after = 0
    if node.op_type != "GatherElements":
        along = node.attributes.get_int("axis", 0) % np.ndim(data) if node.op_type == "Gather" else None
        after = np.ndim(found) - beyond.ndim - (0 if along is None else along)
    return (jnp.where(beyond.reshape(beyond.shape + (1,) * after), jnp.zeros_like(found), found),)


def computed(
    node: ir.Node, lowering: Lowering, operands: list[Any], marks: Marks, compute: Compute
) -> tuple[tuple[Any, ...], list[Mark | None]]:
    """Results of a node that reads marked values, and their marks.

    Raises
    ------
    popart_exception
        The surplus would be seen.
    """
    numbers = {i: m for i, m in marks.items() if isinstance(m, Counted)}
    others = {i: m for i, m in marks.items() if isinstance(m, Surplus)}
    if numbers:
        taken = counted.computed(node, lowering, operands, numbers, others, compute)
        if taken is not None:
            return taken
        for i, m in numbers.items():
            if not lowering.is_static(i):
                operands[i] = m.value
    if node.op_type in ("Shape", "Size"):
        return counted.measured(node, operands, others, compute)
    if not others:
        return compute(operands), [None] * len(node.outputs)
    return _of_rows(node, operands, others, compute)


def _of_rows(
    node: ir.Node, operands: list[Any], marks: Mapping[int, Surplus], compute: Compute
) -> tuple[tuple[Any, ...], list[Mark | None]]:
    op, mark = node.op_type, next(iter(marks.values()))
    nothing: list[Mark | None] = [None] * len(node.outputs)
    inner = neutral.contracted(node, operands, marks)
    if inner is not None:
        return compute(inner), nothing
    along = 0 in marks and marks[0].axis in neutral.axes_seen(node, operands)
    if along:
        if (set(marks) != {0} and not neutral.leaves_labels_out(op)) or not facts(op).neutral:
            raise popart_exception(refusal(op, mark))
        given, attributes = neutral.prepared(node, operands, marks[0])
        results = neutral.rescaled(node, compute(given, **attributes), marks[0])
        if op not in ("Softmax", "LogSoftmax", "CumSum"):
            return results, nothing
        return results, [Surplus(mark.axis, index=False, live=mark.live, maker=mark.maker)]
    if _reads_along(node, operands, marks):
        operands = [operands[0], _from_the_end(node, operands[1], marks[0]), *operands[2:]]
        marks = {i: m for i, m in marks.items() if i}
        if not marks:
            return compute(operands), nothing
        mark = marks[1]
    results = compute(operands)
    if op in _WRITES and 0 not in marks and 1 in marks and marks[1].index:
        return results, nothing  # the surplus is dropped here
    axis = axis_of(node, [np.shape(x) for x in operands], np.shape(results[0]), marks)
    if not axis:
        raise popart_exception(refusal(op, mark))
    stays = op in ARITHMETIC or (moves(op) and op != "Cast" and (op != "Gather" or 0 in marks))
    whole = results[0].dtype in (np.int32, np.int64)
    is_index = all(m.index for m in marks.values()) and whole and (stays or op == "Cast")
    live = mark.live
    if op == "Reshape" and results[0].shape[-axis] != live.size:  # rows cut into pieces
        live = jnp.repeat(live, results[0].shape[-axis] // live.size)
    elif op == "Concat" and results[0].shape[-axis] != live.size:  # rows after others
        live = jnp.concatenate([jnp.ones(results[0].shape[-axis] - live.size, bool), live])
    marked = Surplus(axis, is_index, live=live, maker=mark.maker)
    return (_moved_on(node, operands, results, marks) if is_index else results), [marked] * len(results)


def _reads_along(node: ir.Node, operands: Sequence[Any], marks: Mapping[int, Surplus]) -> bool:
    """Whether positions say which entries of the axis that is too long are read."""
    if node.op_type not in ("Gather", "GatherND") or 0 not in marks:
        return False
    rank = np.ndim(operands[0])
    axis = node.attributes.get_int("axis", 0) % rank if node.op_type == "Gather" else 0
    return marks[0].axis == rank - axis and not node.attributes.get_int("batch_dims", 0)


def _from_the_end(node: ir.Node, index: Any, mark: Surplus) -> Any:
    """Positions that count from the end count from that of what was found."""
    surplus = (mark.live.size - jnp.count_nonzero(mark.live)).astype(index.dtype)
    back = jnp.where(jnp.asarray(index) < 0, surplus, 0)
    if node.op_type == "GatherND":  # its first column are positions along the first axis
        back = jnp.where(jnp.arange(index.shape[-1]) == 0, back, 0)
    return index - back


def _moved_on(
    node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...], marks: Mapping[int, Surplus]
) -> tuple[Any, ...]:
    """Results of arithmetic with positions (of rows to those of a flattened tensor): what was beyond stays beyond."""
    if node.op_type not in ARITHMETIC:
        return results
    (found,) = results
    beyond = [jnp.asarray(operands[i]) == BEYOND for i in marks]
    return (jnp.where(functools.reduce(jnp.logical_or, beyond), jnp.asarray(BEYOND, found.dtype), found),)
