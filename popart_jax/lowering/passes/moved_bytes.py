"""What moves dequantised bytes, to quantise them again as they were, moves the bytes.

Exporters write each operator between DequantizeLinear and QuantizeLinear, a Reshape too. Where both have the same scale
and zero point, rounding gives the bytes back: the error of multiplying and dividing by the scale is below 1e-4 of a
step. A maximum is that of the bytes too, since the scale is positive.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ...model.checks.structure import constant_of
from ...ops.operator import Trait
from ...ops.registry import facts
from .channels_last import take_over
from .quantised import BYTES, dtype_of

_DOMAINS = ("", "ai.onnx")
_MOVING = ("DepthToSpace", "Gather", "MaxPool")
"""Beside those that change the view of one operand: their results hold elements of the first one alone."""
_TYPES = ("output_dtype", "precision")
_SMALLEST, _LARGEST = 1e-30, 1e30
"""Scales between these neither overflow nor vanish."""


def move_bytes(graph: ir.Graph, protected: Collection[str] = ()) -> bool:
    """Rewrite such chains of nodes, in place, where nobody reads the numbers between under their own names."""
    changed = False
    for node in list(graph):
        chain = _chain(node, protected)
        if chain is not None:
            _rewrite(graph, node, chain)
            changed = True
    return changed


def _chain(last: ir.Node, protected: Collection[str]) -> list[ir.Node] | None:
    """The nodes before this QuantizeLinear, from the DequantizeLinear on; None if it undoes none."""
    if not _is(last, "QuantizeLinear"):
        return None
    chain: list[ir.Node] = []
    node = last
    while not chain or _moves(chain[0]):
        value = node.inputs[0]
        maker = None if value is None else value.producer()
        if value is None or maker is None or maker.graph is not last.graph or value.name in protected:
            return None
        if value.is_graph_output() or (len(value.uses()) > 1 and _moves(maker)):
            return None
        chain.insert(0, maker)
        node = maker
    return chain if len(chain) > 1 and _undoes(last, chain[0]) else None


def _is(node: ir.Node, kind: str) -> bool:
    return node.op_type == kind and node.domain in _DOMAINS


def _moves(node: ir.Node) -> bool:
    view = facts(node.op_type).has(Trait.VIEW_CHANGE) and node.op_type != "Concat"
    return (view or node.op_type in _MOVING) and node.domain in _DOMAINS and len(node.outputs) == 1


def _undoes(quantise: ir.Node, dequantise: ir.Node) -> bool:
    """Whether the two have one scale and zero point in common, of one number each, and the same type of bytes."""
    if not _is(dequantise, "DequantizeLinear"):
        return False
    data, scale, zero = (*dequantise.inputs, None)[:3]
    if data is None or scale is None or (scale, zero) != (*quantise.inputs, None)[1:3]:
        return False
    kinds = BYTES if zero is not None else (ir.DataType.UINT8,)  # which QuantizeLinear makes by default
    others = (node.attributes.get_int(name, 0) for node in (quantise, dequantise) for name in _TYPES)
    return dtype_of(zero or data) in kinds and not any(others) and _is_positive(scale)


def _is_positive(scale: ir.Value) -> bool:
    tensor = constant_of(scale)
    if tensor is None or tensor.size != 1 or tensor.dtype != ir.DataType.FLOAT:
        return False
    return _SMALLEST < float(tensor.numpy().reshape(())) < _LARGEST


def _rewrite(graph: ir.Graph, last: ir.Node, chain: list[ir.Node]) -> None:
    result, of_bytes = chain[0].inputs[0], last.outputs[0].type
    for node in chain[1:]:
        new = ir.node(
            node.op_type, [result, *node.inputs[1:]], node.attributes, domain=node.domain, version=node.version
        )
        graph.insert_before(last, new)
        (result,) = new.outputs
        new.name = result.name = f"{node.outputs[0].name}/bytes"
        result.shape, result.type = node.outputs[0].shape, of_bytes
        if node is chain[-1]:
            take_over(last.outputs[0], result)
    for node in (last, *reversed(chain)):
        if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
            graph.remove(node, safe=True)
