"""Rows chosen while the program runs: their number is bounded by a shape, and what fills it up must not be seen.

A NonZero of a tensor of n elements finds at most n. Inside a trace its result has that size, and what is left over is
an index beyond every tensor, which writes drop. Each value made of such an index is marked with the axis that is too
long; a node that would let the surplus be seen (a sum over that axis, the count itself, an output) is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .._compat.jax import Tracer
from ..errors import popart_exception
from ..ops.operator import Trait
from ..ops.registry import facts
from ..ops.select import BEYOND
from ..ops.symbols import is_symbol
from .bounds import FILL, HOW, SIZE


@dataclass(frozen=True, slots=True)
class Surplus:
    """A value that is too long along one axis, counted from the end (1 is the last); as `index` it holds positions.

    `given`: the user said how long, so that it is only followed, to read nothing at its positions.
    """

    axis: int
    index: bool
    given: bool = False


SIZES = Surplus(0, index=False)
"""Mark of sizes of which one counts the surplus: they may only say what shape such a value gets."""

Marks = Mapping[int, Surplus]
"""Marked operands of a node by position."""

_READS = {"Gather": 1, "GatherND": 1, "GatherElements": 1}
_ARITHMETIC = frozenset({"Add", "Sub", "Mul"})
_WRITES = frozenset({"ScatterND", "ScatterElements", "Scatter"})


def bound_of(node: ir.Node, operands: Sequence[Any]) -> dict[str, Any]:
    """Size and filling of a NonZero in a trace that nobody gave a bound; nothing for other nodes."""
    if node.op_type != "NonZero" or node.domain or SIZE in node.attributes or not isinstance(operands[0], Tracer):
        return {}
    size = operands[0].size
    return {"bound": size if is_symbol(size) else max(size, 2), "fill": BEYOND}  # an axis of 1 could be any other


def given_bound(node: ir.Node) -> bool:
    """Whether a user bounded a NonZero, and left its filling to us."""
    return node.op_type == "NonZero" and not node.domain and SIZE in node.attributes and FILL not in node.attributes


def followed(node: ir.Node, operands: Sequence[Any], results: Sequence[Any], marks: Marks) -> list[Surplus | None]:
    """Marks of the results of a node that reads positions of a given bound: those that only move them keep theirs."""
    rule = _rule(node.op_type, marks) if _moves(node.op_type) else None
    axis = rule(node, [np.shape(x) for x in operands], np.shape(results[0]), marks) if rule is not None else 0
    return [Surplus(axis, index=True, given=True) if axis else None] * len(results)


def cleared(node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...], marks: Marks) -> tuple[Any, ...]:
    """What a node reads, with zeros where the position is the filling of a given bound."""
    if node.op_type not in _READS or 1 not in marks or not marks[1].given:
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


def moved_on(node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...], marks: Marks) -> tuple[Any, ...]:
    """Results of arithmetic with positions (of rows to those of a flattened tensor): what was beyond stays beyond."""
    if node.op_type not in _ARITHMETIC or not all(m.index for m in marks.values()):
        return results
    (found,) = results
    beyond = [jnp.asarray(operands[i]) == BEYOND for i in marks]
    return (jnp.where(functools.reduce(jnp.logical_or, beyond), jnp.asarray(BEYOND, found.dtype), found),)


def results_of(node: ir.Node, operands: Sequence[Any], results: Sequence[Any], marks: Marks) -> list[Surplus | None]:
    """Marks of the results of a node that reads marked values.

    Raises
    ------
    popart_exception
        The surplus would be seen.
    """
    op, shapes = node.op_type, [np.shape(x) for x in operands]
    if op == "Shape" or (_moves(op) and all(m is SIZES for m in marks.values())):
        return [SIZES]
    if op in ("Expand", "Reshape") and marks.get(1) is SIZES and 0 in marks:
        marks = {0: marks[0]}
    shape = np.shape(results[0])
    if op in _WRITES and 0 not in marks and 1 in marks and marks[1].index:
        return [None]  # the surplus is dropped here
    rule = None if SIZES in marks.values() else _rule(op, marks)
    axis = rule(node, shapes, shape, marks) if rule is not None else 0
    if not axis:
        raise popart_exception(refusal(op))
    moves = op in _ARITHMETIC or (_moves(op) and (op != "Gather" or 0 in marks))
    is_index = moves and all(m.index for m in marks.values())
    return [Surplus(axis, is_index)] * len(results)


def _moves(op: str) -> bool:
    return facts(op).has(Trait.MOVES_ROWS)


def refusal(what: str) -> str:
    """Why, and what to do."""
    return (
        f"how many elements NonZero finds is known only when the program runs, and {what} would see what fills its "
        f"result up; call it outside jit, or {HOW}"
    )


Rule = Callable[[ir.Node, list[Any], Any, Marks], int]


def _rule(op: str, marks: Marks) -> Rule | None:
    """How the axis of the surplus goes on; None where nothing is known of the operator."""
    if op in _READS and set(marks) == {1} and marks[1].index:
        return _read
    if _moves(op) and (set(marks) == {0} or op == "Concat"):
        return _moved
    if any(m.index for m in marks.values()):
        return _alike if op in _ARITHMETIC and all(m.index for m in marks.values()) else None
    if facts(op).has(Trait.ELEMENTWISE):
        return _alike
    if op in ("MatMul", "Gemm"):
        return _product if set(marks) == {0} else None
    if facts(op).has(Trait.ROW_BY_ROW) or op.startswith("Reduce"):
        return _along_others if set(marks) == {0} else None
    return None


def _read(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """Rows read at marked positions."""
    rank, axis = len(shapes[0]), marks[1].axis
    if node.op_type == "GatherElements":
        return axis
    if node.op_type == "GatherND":
        batched = node.attributes.get_int("batch_dims", 0)
        return axis - 1 + rank - shapes[1][-1] if axis > 1 and not batched else 0
    return axis + rank - node.attributes.get_int("axis", 0) % rank - 1


def _moved(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """The axis where the elements after it are as many as before, and that is as long as before."""
    old, axis, op = shapes[0], next(iter(marks.values())).axis, node.op_type
    if len(set(marks.values())) != 1:
        return 0
    if op == "Transpose":
        perm = node.attributes.get_ints("perm", tuple(reversed(range(len(old)))))
        return len(old) - list(perm).index(len(old) - axis)
    if op in ("Gather", "Split", "Concat"):
        along = len(old) - node.attributes.get_int("axis", 0) % len(old)
        gone = 1 - len(shapes[1]) if op == "Gather" and along < axis else 0
        return axis - gone if along != axis and (op != "Concat" or len(marks) == len(shapes)) else 0
    if op in ("Squeeze", "Unsqueeze", "Reshape"):
        after = int(np.prod(old[len(old) - axis + 1 :]))
        fits = [e for e in range(1, len(shape) + 1) if int(np.prod(shape[len(shape) - e + 1 :])) == after]
        return next((e for e in fits if shape[-e] == old[-axis] and old[-axis] != 1), 0)
    return axis if shape[-axis] == old[-axis] else 0


def _alike(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """Elementwise: operands of the same surplus, and others that are one long there."""
    (axis, *more) = {m.axis for m in marks.values()}
    others = [s for i, s in enumerate(shapes) if i not in marks and len(s) >= axis]
    return axis if not more and all(s[-axis] == 1 for s in others) else 0


def _product(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """A matrix product whose first operand has too many rows, none of which it adds up."""
    axis = marks[0].axis
    turned = node.op_type == "Gemm" and node.attributes.get_int("transA", 0)
    return axis if axis >= 2 and len(shapes[1]) == 2 and not turned else 0


def _along_others(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """Reductions and normalisations along the last axis, while the surplus lies before it."""
    rank, axis = len(shapes[0]), marks[0].axis
    if axis == 1 or shape[: rank - 1] != shapes[0][: rank - 1]:
        return 0
    if facts(node.op_type).has(Trait.ROW_BY_ROW):
        return axis if node.attributes.get_int("axis", -1) in (-1, rank - 1) else 0
    return axis - 1 if len(shape) == rank - 1 else axis
