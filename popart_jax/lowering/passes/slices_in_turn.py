"""Chains several DynamicSlices of one tensor that are declared not to overlap; see `kernels.slices_in_turn`."""

from __future__ import annotations

import onnx_ir as ir

from ..kernels import DOMAIN
from .channels_last import take_over


def slices_in_turn(graph: ir.Graph) -> bool:
    """Rewrite such slices, in place; returns whether anything changed."""
    taken: dict[ir.Value | None, list[ir.Node]] = {}
    for node in graph:
        if (node.domain, node.op_type) == ("ai.graphcore", "DynamicSlice") and node.attributes.get_int("noOverlap", 0):
            taken.setdefault(node.inputs[0], []).append(node)
    found = [nodes for nodes in taken.values() if len(nodes) > 1]
    for nodes in found:
        _rewrite(graph, nodes)
    return bool(found)


def _rewrite(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    tensor: ir.Value | None = nodes[0].inputs[0]
    written: ir.Value | None = None
    for node in nodes:
        inputs = [tensor, *node.inputs[1:], None][:3]
        new = ir.Node(
            DOMAIN, "SliceInTurn", [*inputs, written], node.attributes.values(), num_outputs=3, name=node.name
        )
        graph.insert_before(node, new)
        take_over(node.outputs[0], new.outputs[0])
        graph.remove(node, safe=True)
        _, tensor, written = new.outputs
