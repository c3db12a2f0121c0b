"""Helpers of rewrites: replacing operators and tensors in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir


def insert_before(op: Any, others: Sequence[Any]) -> None:
    """Move operators of the same graph to just before `op` in the node order."""
    graph = op._graph._graph
    nodes = [o._node for o in others]
    for node in nodes:
        graph.remove(node)
    graph.insert_before(op._node, nodes)


def in_order(graph: Any, ops: Sequence[Any]) -> None:
    """Put the nodes of a graph into the order of `ops`, in which they run."""
    nodes = [op._node for op in ops]
    graph._graph.remove(nodes)
    graph._graph.extend(nodes)


def adopt(graph: Any, tensor: Any, value: ir.Value) -> None:
    """Replace the value of a tensor by `value`; the tensor keeps its object, name and readers."""
    old = tensor._value
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    old.meta.pop("tensor", None)
    name, old.name = old.name, None
    value.name, value.meta["tensor"] = name, tensor
    tensor._value = value
    graph._tensors[name] = tensor


def take_over(old: Any, new: Any) -> None:
    """Replace operator `old` by `new`, which takes over the output tensors (the same objects) and the order."""
    graph = old._graph
    for i, tensor in list(old._outputs().items()):
        graph._tensors.pop(new._out(i).id, None)
        adopt(graph, tensor, new._node.outputs[i])
    graph._topo_cons.replace(old, new)
    graph._graph.remove(old._node)
    old.disconnectAllInputs()
    del graph._ops[old.id]
