"""Which axis of a result is padded, given the padded axes of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from ...ops.operator import Trait
from ...ops.registry import facts
from .padded import Padded

READS = {"Gather": 1, "GatherND": 1, "GatherElements": 1}
"""Operators that read at positions, and the index of the input with the positions."""
REGIONS = frozenset({"RoiAlign", "MaxRoiPool"})
"""Operators that compute one result for each region of an image."""
ARITHMETIC = frozenset({"Add", "Sub", "Mul"})
"""Operators that compute positions from positions."""


def moves(op: str) -> bool:
    """Whether an operator only moves rows, without changing their values."""
    return facts(op).has(Trait.MOVES_ROWS)


def axis_of(node: ir.Node, shapes: list[Any], shape: Any, marks: Mapping[int, Padded]) -> int:
    """The padded axis of the result, counted from the end; 0 where it is unknown."""
    rule = _rule(node.op_type, marks)
    return 0 if rule is None else rule(node, shapes, shape, marks)


Marks = Mapping[int, Padded]
Rule = Callable[[ir.Node, list[Any], Any, Marks], int]


def _rule(op: str, marks: Marks) -> Rule | None:
    """The rule that gives the padded axis of an operator's result; None for operators without one."""
    if op in READS and set(marks) == {1}:
        return _read
    if moves(op) and (set(marks) == {0} or op == "Concat"):
        return _moved
    if facts(op).has(Trait.ELEMENTWISE):
        return _alike
    if facts(op).has(Trait.PER_SAMPLE) and set(marks) == {0}:
        return _samples
    if op in REGIONS and 0 not in marks:
        return _samples
    if op == "OneHot":
        return _hot if set(marks) == {0} else None
    if op in ("MatMul", "Gemm"):
        return _product if set(marks) == {0} else None
    if facts(op).has(Trait.ROW_BY_ROW) or op.startswith("Reduce"):
        return _along_others if set(marks) == {0} else None
    return None


def _samples(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """One result for each sample or region: the first axis of operands and result."""
    first = all(m.axis == len(shapes[i]) and shape[0] == shapes[i][0] for i, m in marks.items())
    return len(shape) if first else 0


def _hot(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """OneHot: a new axis is inserted, for the classes."""
    rank = len(shape)
    new, old = rank - node.attributes.get_int("axis", -1) % rank, marks[0].axis
    return old + 1 if new <= old else old


def _read(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """Rows gathered at padded positions."""
    rank, axis = len(shapes[0]), marks[1].axis
    if node.op_type == "GatherElements":
        return axis
    if node.op_type == "GatherND":
        batched = node.attributes.get_int("batch_dims", 0)
        return axis - 1 + rank - shapes[1][-1] if axis > 1 and not batched else 0
    return axis + rank - node.attributes.get_int("axis", 0) % rank - 1


def _moved(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """The axis of the same length that has the same number of elements after it as before."""
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
    if op in ("Squeeze", "Unsqueeze", "Reshape", "Flatten"):
        after = int(math.prod(old[len(old) - axis + 1 :]))
        fits = [e for e in range(1, len(shape) + 1) if int(math.prod(shape[len(shape) - e + 1 :])) == after]
        return next((e for e in fits if shape[-e] == old[-axis] and old[-axis] != 1), 0) or _cut(old, shape, axis)
    return axis if shape[-axis] == old[-axis] else 0


def _cut(old: Any, shape: Any, axis: int) -> int:
    """The axis of the pieces where each row is split into equally many pieces."""
    before = int(math.prod(old[: len(old) - axis]))
    fits = [e for e in range(1, len(shape) + 1) if int(math.prod(shape[: len(shape) - e])) == before]
    return next((e for e in fits if old[-axis] not in (1, shape[-e]) and shape[-e] % old[-axis] == 0), 0)


def _alike(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """Elementwise operators: all operands have the same padding, or size 1 along its axis."""
    (axis, *more) = {m.axis for m in marks.values()}
    others = [s for i, s in enumerate(shapes) if i not in marks and len(s) >= axis]
    return axis if not more and all(s[-axis] == 1 for s in others) else 0


def _product(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """A matrix product whose first operand is padded along its rows, which are not summed over."""
    axis = marks[0].axis
    turned = node.op_type == "Gemm" and node.attributes.get_int("transA", 0)
    return axis if axis >= 2 and len(shapes[1]) == 2 and not turned else 0


def _along_others(node: ir.Node, shapes: list[Any], shape: Any, marks: Marks) -> int:
    """Reductions and normalisations along the last axis, while the padding lies before it."""
    rank, axis = len(shapes[0]), marks[0].axis
    if axis == 1 or shape[: rank - 1] != shapes[0][: rank - 1]:
        return 0
    if facts(node.op_type).has(Trait.ROW_BY_ROW):
        return axis if node.attributes.get_int("axis", -1) in (-1, rank - 1) else 0
    return axis - 1 if len(shape) == rank - 1 else axis
