"""Rewrites the sum of a mask that determines a shape to the size of the mask's NonZero, which a trace can follow.

PyTorch's exporter writes ``x[mask] = y`` as a NonZero for the positions, and y expanded to the sum of the mask.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx import defs

from ...model.checks.structure import constant_of
from ...ops.operator import Trait
from ...ops.registry import facts, resolve_node

_REACH = 32
"""Most nodes between a sum and the operand that it sizes; exporters write about four."""


def size_masks(graph: ir.Graph) -> bool:
    """Rewrite such sums, in place; returns whether anything changed."""
    changed = False
    for node in list(graph):
        mask = _mask_of(node)
        uses = [] if mask is None else [(n, i) for n, i in node.outputs[0].uses() if _says_a_size(n, i, graph)]
        if mask is not None and uses:
            size = _insert_size(graph, node, mask)
            for reader, at in uses:
                reader.replace_input_with(at, size)
            changed = True
    return changed


def _mask_of(node: ir.Node) -> ir.Value | None:
    """The mask of which a node counts all true elements; None for other nodes."""
    if node.op_type != "ReduceSum" or not _is_onnx(node) or not node.inputs or node.inputs[0] is None:
        return None
    summed = node.inputs[0]
    rank = _rank(summed)
    chooses = len(node.inputs) > 1 or "axes" in node.attributes or node.attributes.get_int("noop_with_empty_axes", 0)
    if rank != 1 and (chooses or node.attributes.get_int("keepdims", 1)):
        return None
    cast = summed.producer()
    if cast is None or cast.op_type != "Cast" or cast.attributes.get_int("to", 0) != ir.DataType.INT64:
        return None
    mask = cast.inputs[0]
    while mask is not None and (maker := mask.producer()) is not None and maker.op_type == "Reshape":
        mask = maker.inputs[0]  # a Reshape has the same elements
    return mask if mask is not None and _is_mask(mask) else None


def _is_onnx(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx")


def _rank(value: ir.Value) -> int | None:
    """Number of dimensions of a value; None where the model does not declare it."""
    maker = value.producer()
    if value.shape is not None:
        return len(value.shape)
    given = () if maker is None or not _is_onnx(maker) else [v for v in maker.inputs if v is not None]
    if maker is not None and maker.op_type == "Reshape" and len(given) == 2:
        sizes = constant_of(given[1])
        return None if sizes is None else sizes.size
    return _rank(given[0]) if maker is not None and maker.op_type == "Cast" and given else None


def _is_mask(value: ir.Value) -> bool:
    if value.dtype is not None:
        return value.dtype is ir.DataType.BOOL and (value.shape is None or len(value.shape) > 0)
    maker = value.producer()
    if maker is None or not _is_onnx(maker) or not defs.has(maker.op_type):
        return False
    if facts(maker.op_type).has(Trait.MOVES_ROWS) and maker.op_type != "Cast" and maker.inputs[0] is not None:
        return _is_mask(maker.inputs[0])
    return defs.get_schema(maker.op_type).outputs[0].types == {"tensor(bool)"}


def _says_a_size(reader: ir.Node, at: int, graph: ir.Graph) -> bool:
    """Whether the number that `reader` reads leads, through moves and arithmetic, to an operand that must be static."""
    pending, seen = [(reader, at)], set[ir.Node]()
    while pending and len(seen) < _REACH:
        node, at = pending.pop()
        if node.graph is not graph or node in seen:
            continue
        row = resolve_node(node, graph.opset_imports)
        if row is not None and row.is_static(at):
            return True
        seen.add(node)
        if facts(node.op_type).has(Trait.MOVES_ROWS | Trait.ELEMENTWISE):
            pending.extend((n, i) for value in node.outputs for n, i in value.uses())
    return False


def _insert_size(graph: ir.Graph, node: ir.Node, mask: ir.Value) -> ir.Value:
    """Insert nodes for the size of the mask's NonZero, its number of true elements; shaped as the sum is."""
    name = node.name or node.outputs[0].name or "sum"
    place = ir.tensor(np.ones((1,) if node.attributes.get_int("keepdims", 1) else (), np.int64))
    found = ir.Node("", "NonZero", [mask], name=f"{name}/places")
    shape = ir.Node("", "Shape", found.outputs, name=f"{name}/shape")
    which = ir.Node("", "Constant", [], [ir.AttrTensor("value", place)], name=f"{name}/second")
    size = ir.Node("", "Gather", [*shape.outputs, *which.outputs], name=f"{name}/size")
    graph.insert_before(node, [found, shape, which, size])
    return size.outputs[0]
