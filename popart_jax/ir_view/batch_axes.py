"""Finds the batch dimension of each tensor, through ops that treat the elements of the batch independently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import onnx_ir as ir

from patterns import static_shape

from ..ops import Operator, Trait, resolve
from . import nodes

Axes = dict[ir.Value, int]


def of_streams(graph: ir.Graph) -> Axes:
    """Batch dimension of the streamed inputs: the first; the second if recurrent ops read them as sequences."""
    streams = nodes.sources_read(graph, "stream")
    return {v: int(_is_sequence(v)) for v in streams if len(static_shape(v) or ()) > _is_sequence(v)}


def _is_sequence(value: ir.Value) -> bool:
    return any(use.idx == 0 and nodes.row(use.node).has(Trait.RECURRENT) for use in value.uses())


def results(node: ir.Node, axes: Axes) -> list[int] | None:
    """Batch dimension of each output; None if the op does not treat the elements of the batch independently."""
    shapes = [None if v is None else static_shape(v) for v in node.inputs]
    outputs = [static_shape(o) for o in node.outputs]
    if not any(v in axes for v in node.inputs if v is not None):
        return None
    if any(s is None for s, v in zip(shapes, node.inputs, strict=True) if v is not None) or None in outputs:
        return None
    rule = _rule(nodes.row(node))
    found = None if rule is None else rule(node, axes, [s for s in outputs if s is not None])
    return None if found is None else [found] * len(node.outputs)


def _rule(row: Operator) -> Rule | None:
    if row.has(Trait.ELEMENTWISE):
        return _elementwise
    return _sample if row.has(Trait.PER_SAMPLE) else _RULES.get(row.batch)


def _axis(node: ir.Node) -> int:
    """The attribute `axis`, or its default in the operator's version."""
    opset = 11 if node.graph is None else node.graph.opset_imports.get("", 11)
    row = resolve(node.domain, node.op_type, node.version or opset)
    default = 0 if row is None else row.attributes.get("axis", 0)
    return int(nodes.attribute(node, "axis", default))


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    return tuple(static_shape(value) or ())


def _elementwise(node: ir.Node, axes: Axes, outputs: Sequence[Sequence[int]]) -> int | None:
    rank = len(outputs[0])
    found = {axes[v] + rank - len(_shape(v)) for v in node.inputs if v is not None and v in axes}
    axis = found.pop()
    if found:
        return None
    others = [_shape(v) for v in node.inputs if v is not None and v not in axes]
    own = [s[axis - rank + len(s)] for s in others if axis - rank + len(s) >= 0]
    return axis if all(d == 1 for d in own) else None


def _sample(node: ir.Node, axes: Axes, _: Sequence[Sequence[int]]) -> int | None:
    first, *others = node.inputs
    alone = not any(v in axes for v in others if v is not None)
    return 0 if first is not None and axes.get(first) == 0 and alone else None


def _along(node: ir.Node, axes: Axes, outputs: Sequence[Sequence[int]]) -> int | None:
    given = [v for v in node.inputs if v is not None and len(_shape(v)) == len(_shape(node.inputs[0]))]
    found = {axes.get(v) for v in given}
    axis = found.pop()
    if found or axis is None:
        return None
    rank = len(_shape(given[0]))
    at = _axis(node) % rank
    if at == axis:
        return None
    return axis - (at < axis and len(outputs[0]) < rank)


def _softmax(node: ir.Node, axes: Axes, _: Sequence[Sequence[int]]) -> int | None:
    value = node.inputs[0]
    assert value is not None
    at = _axis(node) % len(_shape(value))
    return axes[value] if axes[value] < at else None


def _reduced(node: ir.Node, axes: Axes, outputs: Sequence[Sequence[int]]) -> int | None:
    value, given = node.inputs[0], nodes.attribute(node, "axes")
    if value not in axes or not given:
        return None
    rank = len(_shape(value))
    over = {int(a) % rank for a in given}
    if axes[value] in over:
        return None
    return axes[value] - sum(a < axes[value] for a in over) * (len(outputs[0]) < rank)


def _product(node: ir.Node, axes: Axes, outputs: Sequence[Sequence[int]]) -> int | None:
    lhs, rhs = node.inputs[:2]
    if lhs not in axes or lhs is None:
        return None
    behind = len(_shape(lhs)) - axes[lhs]  # 1 is the contraction, 2 the rows
    other = _shape(rhs)
    if rhs is not None and rhs in axes:
        alike = behind > 2 and len(other) - axes[rhs] == behind
    else:
        alike = behind == 2 or (behind > 2 and (len(other) < behind or other[len(other) - behind] == 1))
    return len(outputs[0]) - behind if alike else None


def _view(node: ir.Node, axes: Axes, outputs: Sequence[Sequence[int]]) -> int | None:
    """Reshapes keep slices of the batch contiguous, also if the batch is merged with the dimension behind it."""
    value = node.inputs[0]
    if value not in axes or value is None:
        return None
    before = prod(_shape(value)[: axes[value]])
    return next((j for j, d in enumerate(outputs[0]) if d > 1 and prod(outputs[0][:j]) == before), None)


def _transposed(node: ir.Node, axes: Axes, _: Sequence[Sequence[int]]) -> int | None:
    value = node.inputs[0]
    assert value is not None
    order = list(nodes.attribute(node, "perm") or reversed(range(len(_shape(value)))))
    return order.index(axes[value])


def _gathered(node: ir.Node, axes: Axes, _: Sequence[Sequence[int]]) -> int | None:
    data, indices = node.inputs[:2]
    at = _axis(node) % max(len(_shape(data)), 1)
    if data not in axes and indices is not None and indices in axes:
        return at + axes[indices]
    if data is None or indices in axes or axes[data] == at:
        return None
    return axes[data] if axes[data] < at else axes[data] + len(_shape(indices)) - 1


Rule = Callable[[ir.Node, Axes, Sequence[Sequence[int]]], int | None]
_RULES: dict[str, Rule] = {
    "along axis": _along, "gather": _gathered, "product": _product, "reduction": _reduced, "softmax": _softmax,
    "transpose": _transposed, "view": _view,
}  # fmt: skip
