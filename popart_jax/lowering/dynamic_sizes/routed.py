"""Rows routed by data, as in a mixture of experts: each node that reads a padded value, computed without its padding.

A NonZero of a tensor of n elements finds at most n, so inside a trace its result has n entries. Those past the true
number are an index outside of every tensor, which scatters drop. Compress, Unique and NonMaxSuppression work likewise.
Every value computed from such a result is marked with its padded axis and the mask of valid entries. Reductions along
that axis, its size, and numbers computed from the size see valid entries only. A node that would show the padding (an
output of the model, a subgraph) is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from ...ops.operator import Trait
from ...ops.registry import Lowering, facts
from ...ops.select import BEYOND
from ...ops.stopping import unless
from . import neutral, pieces, size_dependent
from .axes import ARITHMETIC, READS, axis_of, moves
from .padded import Padded, SizeDependent, Uncut, masked, refusal

Mark = Padded | SizeDependent
Marks = Mapping[int, Mark]
"""Marked operands of a node by position."""
Compute = Callable[..., tuple[Any, ...]]
"""Computes the results of the node from the given operands, and with attributes replaced by keywords."""

_WRITES = frozenset({"ScatterND", "ScatterElements", "Scatter"})


def followed(node: ir.Node, operands: Sequence[Any], results: Sequence[Any], marks: Marks) -> list[Mark | None]:
    """Marks of the results of a node that reads positions padded to a user's bound; only moved positions keep them."""
    given = cast("Mapping[int, Padded]", marks)
    shapes = [np.shape(x) for x in operands]
    axis = axis_of(node, shapes, np.shape(results[0]), given) if moves(node.op_type) else 0
    return [Padded(axis, index=True, given=True) if axis else None] * len(results)


def cleared(node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...], marks: Marks) -> tuple[Any, ...]:
    """Results of a node that reads at positions padded to a user's bound, with zeros at the padding."""
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
    """Results of a node that reads marked values, and their marks; popart_exception if their padding would be seen."""
    numbers = {i: m for i, m in marks.items() if isinstance(m, SizeDependent)}
    others = {i: m for i, m in marks.items() if isinstance(m, Padded)}
    if numbers:
        taken = size_dependent.computed(node, lowering, operands, numbers, others, compute)
        if taken is not None:
            return taken
        for i, m in numbers.items():
            if not lowering.is_static(i):
                operands[i] = m.value
    if node.op_type in ("Shape", "Size"):
        return size_dependent.measured(node, operands, others, compute)
    if not others:
        return compute(operands), [None] * len(node.outputs)
    return _of_rows(node, operands, others, compute)


def _of_rows(
    node: ir.Node, operands: list[Any], marks: Mapping[int, Padded], compute: Compute
) -> tuple[tuple[Any, ...], list[Mark | None]]:
    op = node.op_type
    nothing: list[Mark | None] = [None] * len(node.outputs)
    piece = pieces.computed(node, operands, marks, compute)
    if piece is not None:
        return piece[0], [*piece[1]]
    inner = neutral.contracted(node, operands, marks)
    if inner is not None:
        return compute(inner), nothing
    if 0 in marks and marks[0].axis in neutral.axes_seen(node, operands):
        return _along(node, operands, marks, compute)
    if _reads_along(node, operands, marks):
        operands = [operands[0], _from_the_end(node, operands[1], marks[0]), *operands[2:]]
        marks = {i: m for i, m in marks.items() if i}
        if not marks:
            return compute(operands), nothing
    if op in _WRITES and (1 in marks or set(marks) == {0}):
        if 1 in marks:
            operands = [operands[0], _written_at(operands[1], marks[1], np.shape(operands[2]), 2 in marks), operands[2]]
        if 0 in marks:
            operands = _writes_from_the_end(node, operands, marks[0])
        return compute(operands), [marks.get(0)]  # positions of the padding are dropped here
    if facts(op).has(Trait.ELEMENTWISE):
        whole = _of_known_size(operands, marks)
        if whole is not None:
            return compute(whole), nothing
        operands, marks = _of_one_size(operands, marks)
    return _marked(node, operands, marks, compute(operands))


def _along(
    node: ir.Node, operands: list[Any], marks: Mapping[int, Padded], compute: Compute
) -> tuple[tuple[Any, ...], list[Mark | None]]:
    """Results of an operator that computes along the padded axis of its first operand."""
    op, mark = node.op_type, marks[0]
    if (set(marks) != {0} and not neutral.leaves_labels_out(op)) or not facts(op).neutral:
        raise popart_exception(refusal(op, mark))
    given, attributes = neutral.prepared(node, operands, mark)
    results = neutral.rescaled(node, compute(given, **attributes), mark)
    if op not in ("Softmax", "LogSoftmax", "CumSum"):
        return results, [None] * len(node.outputs)
    return results, [Padded(mark.axis, index=False, live=mark.live, maker=mark.maker)]


def _marked(
    node: ir.Node, operands: list[Any], marks: Mapping[int, Padded], results: tuple[Any, ...]
) -> tuple[tuple[Any, ...], list[Mark | None]]:
    """Results that are padded as the operands are, with their marks."""
    op, mark = node.op_type, next(iter(marks.values()))
    axis = axis_of(node, [np.shape(x) for x in operands], np.shape(results[0]), marks)
    if not axis:
        raise popart_exception(refusal(op, mark))
    stays = op in ARITHMETIC or (moves(op) and op != "Cast" and (op != "Gather" or 0 in marks))
    whole = results[0].dtype in (np.int32, np.int64)
    is_index = all(m.index for m in marks.values()) and whole and (stays or op == "Cast")
    live = mark.live
    if op in ("Reshape", "Flatten") and results[0].shape[-axis] != live.size:  # rows split into pieces
        live = jnp.repeat(live, results[0].shape[-axis] // live.size)
    marked = Padded(axis, is_index, live=live, maker=mark.maker)
    return (_moved_on(node, operands, results, marks) if is_index else results), [marked] * len(results)


def _written_at(index: Any, mark: Padded, updates: tuple[Any, ...], padded: bool) -> Any:
    """Positions to write at: as many as there are updates, or outside of the tensor where both are padded."""
    size = updates[np.ndim(index) - mark.axis]
    if not padded and size != mark.live.size:
        return _exactly(index, mark, size)
    one = Uncut.of(index, mark).resized(size)
    return one.value if mark.index else masked(one.value, one.mark, BEYOND)  # an edge list is no index by itself


def _of_known_size(operands: list[Any], marks: Mapping[int, Padded]) -> list[Any] | None:
    """Operands without padding, where one that has none tells how many entries there are; None where none does."""
    axis, *others = {m.axis for m in marks.values()}
    sizes = {np.shape(x)[-axis] for i, x in enumerate(operands) if i not in marks and np.ndim(x) >= axis}
    sizes -= {1, *(m.live.size for m in marks.values())}
    if others or len(sizes) != 1:
        return None
    return [_exactly(x, marks[i], *sizes) if i in marks else x for i, x in enumerate(operands)]


def _exactly(x: Any, mark: Padded, size: int) -> Any:
    """That many entries, or one for all of them; the run fails where another number was found."""
    count = jnp.count_nonzero(mark.live)
    at = jnp.where(count == 1, 0, jnp.arange(size, dtype=jnp.int32))
    reason = f"{mark.maker} found another number of elements than the {size} that its result is computed with"
    return unless((count != size) & (count != 1), reason, [jnp.take(x, at, axis=-mark.axis, mode="clip")])[0]


def _of_one_size(operands: list[Any], marks: Mapping[int, Padded]) -> tuple[list[Any], Mapping[int, Padded]]:
    """Operands with the same padding: as many entries are valid in all of them, so the shortest holds enough."""
    sizes = {m.live.size for m in marks.values()}
    if len(sizes) == 1 or len({m.axis for m in marks.values()}) > 1:
        return operands, marks
    cut = {i: Uncut.of(operands[i], m).resized(min(sizes)) for i, m in marks.items()}
    given = [cut[i].value if i in cut else x for i, x in enumerate(operands)]
    return given, {i: one.mark for i, one in cut.items()}


def _reads_along(node: ir.Node, operands: Sequence[Any], marks: Mapping[int, Padded]) -> bool:
    """Whether a Gather reads along the padded axis of its data."""
    if node.op_type not in ("Gather", "GatherND") or 0 not in marks:
        return False
    rank = np.ndim(operands[0])
    axis = node.attributes.get_int("axis", 0) % rank if node.op_type == "Gather" else 0
    return marks[0].axis == rank - axis and not node.attributes.get_int("batch_dims", 0)


def _from_the_end(node: ir.Node, index: Any, mark: Padded) -> Any:
    """Negative positions, shifted to count from the end of the valid entries."""
    padding = (mark.live.size - jnp.count_nonzero(mark.live)).astype(index.dtype)
    back = jnp.where(jnp.asarray(index) < 0, padding, 0)
    if node.op_type in ("GatherND", "ScatterND"):  # its first column has the positions along the first axis
        back = jnp.where(jnp.arange(index.shape[-1]) == 0, back, 0)
    return index - back


def _writes_from_the_end(node: ir.Node, operands: list[Any], mark: Padded) -> list[Any]:
    """Operands of a node that writes into padded data; negative positions count from the end of its valid entries."""
    rank = np.ndim(operands[0])
    axis = 0 if node.op_type == "ScatterND" else node.attributes.get_int("axis", 0) % rank
    if mark.axis != rank - axis:
        return operands
    return [operands[0], _from_the_end(node, operands[1], mark), *operands[2:]]


def _moved_on(
    node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...], marks: Mapping[int, Padded]
) -> tuple[Any, ...]:
    """Results of arithmetic with positions, as for flat indices; positions outside of the tensor stay outside."""
    if node.op_type not in ARITHMETIC:
        return results
    (found,) = results
    beyond = [jnp.asarray(operands[i]) == BEYOND for i in marks]
    return (jnp.where(functools.reduce(jnp.logical_or, beyond), jnp.asarray(BEYOND, found.dtype), found),)
