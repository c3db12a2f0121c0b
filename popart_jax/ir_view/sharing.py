"""Last clean-up of the view: calls share subgraphs, and Constant nodes become constant tensors."""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from patterns import static_shape

from . import nodes


def all_graphs(graph: ir.Graph) -> list[ir.Graph]:
    """The graph and every subgraph once, outermost first."""
    found: dict[int, ir.Graph] = {id(graph): graph}
    pending = [graph]
    while pending:
        for node in pending.pop(0):
            for body in nodes.subgraphs(node):
                if id(body) not in found:
                    found[id(body)] = body
                    pending.append(body)
    return list(found.values())


def constants_to_tensors(graph: ir.Graph) -> None:
    """Constant nodes that rewrites made become constant tensors, which are no ops in PopART."""
    for each in all_graphs(graph):
        for node in [n for n in each if n.op_type == "Constant"]:
            output = node.outputs[0]
            constant = nodes.source(output.name or "", "const", output.dtype, static_shape(output))
            constant.const_value = output.const_value
            output.name = None
            output.replace_all_uses_with(constant, replace_graph_outputs=True)
            each.remove(node, safe=True)


def share_callees(graph: ir.Graph) -> None:
    """Calls of one builder's subgraph share it; the model file holds a copy per call."""
    known: dict[Hashable, ir.Graph] = {}
    for each in all_graphs(graph):
        for node in each:
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.GRAPH and node.op_type == "Call":
                    body = attribute.as_graph()
                    first = known.setdefault(_signature(body), body)
                    if first is not body:
                        node.attributes[name] = ir.AttrGraph(name, first)


def _signature(body: ir.Graph) -> Hashable:
    types = tuple((v.dtype, static_shape(v)) for v in (*body.inputs, *body.outputs))
    return body.name, types, tuple(n.op_type for n in body)
