"""Rewriting: putting operators where another one was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def insert_before(op: Any, others: Sequence[Any]) -> None:
    """Move operators of the same graph to just before `op` in the node order."""
    graph = op._graph._graph
    nodes = [o._node for o in others]
    for node in nodes:
        graph.remove(node)
    graph.insert_before(op._node, nodes)


def take_over(old: Any, new: Any) -> None:
    """`new` replaces `old`: it gives old's output tensors (the same objects) and stands in its order."""
    graph = old._graph
    keep = list(old._outputs().items())
    for i, tensor in keep:
        temporary = new._out(i)
        value = new._node.outputs[i]
        graph._tensors.pop(temporary.id, None)
        old_value = tensor._value
        value.meta["tensor"] = tensor
        for node, k in list(old_value.uses()):
            node.replace_input_with(k, value)
        for k, output in enumerate(graph._graph.outputs):
            if output is old_value:
                graph._graph.outputs[k] = value
        old_value.meta.pop("tensor", None)
        value.name, old_value.name = old_value.name, None
        tensor._value = value
    graph._topo_cons.replace(old, new)
    graph._graph.remove(old._node)
    old.disconnectAllInputs()
    del graph._ops[old.id]


def bypass(op: Any) -> None:
    """Erase an operator with one operand and one output: its readers read the operand instead."""
    graph = op._graph
    source, gone = op._in(0), op._out(0)
    if gone._value.is_graph_output():
        _swap_names(graph, op, source, gone)
        return
    for node, k in list(gone._value.uses()):
        node.replace_input_with(k, source._value)
    graph._erase(op)


def _swap_names(graph: Any, op: Any, source: Any, gone: Any) -> None:
    """The operator gives a graph output: the output tensor takes the place of the operand where that is possible."""
    if source._value.producer() is None or source._value.is_graph_output() or source._kind is not gone._kind:
        return
    producer = source._value.producer().meta["op"]
    value = source._value
    for node, k in list(gone._value.uses()):
        node.replace_input_with(k, value)
    for k, output in enumerate(graph._graph.outputs):
        if output is gone._value:
            graph._graph.outputs[k] = value
    old_value = gone._value
    graph._graph.remove(op._node)
    op.disconnectAllInputs()
    graph._topo_cons.replace(op, producer)
    del graph._ops[op.id]
    graph._tensors.pop(source.id, None)
    name, old_value.name = old_value.name, None
    old_value.meta.pop("tensor", None)
    value.name = name
    value.meta["tensor"] = gone
    gone._value = value
