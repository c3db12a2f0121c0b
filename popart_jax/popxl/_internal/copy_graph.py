"""Copies of whole graphs, for ``Graph.copyFrom`` of the internal IR; names with and without the scope of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from .enums import TensorType
from .schedule import schedule


def copy_graph(target: Any, source: Any, inputs: bool, outputs: bool) -> None:
    """Copy tensors, operators and their order from one graph to another; names move from scope to scope.

    `inputs` and `outputs` tell whether what the source has as such becomes that of the target.
    """
    given: Sequence[Any] = source.inputs if inputs else ()
    for t in given:
        target._pb_graph.addInput(_renamed(target, source, t.id), t._pb_tensor.info)
    for t in source.tensors:
        if t._value.producer() is None and t not in given:
            _copy_tensor(target, t, _renamed(target, source, t.id))
    copies = {op: _copy_operator(target, source, op) for op in schedule(source)}
    for after, befores in source._topo_cons.after.items():
        for before in befores:
            target._topo_cons.insert(copies[before], copies[after])
    for t in cast("Sequence[Any]", source.outputs if outputs else ()):
        target._pb_graph.markAsOutput(_renamed(target, source, t.id))


def _renamed(target: Any, source: Any, tensor_id: str) -> str:
    return addScope(target, removeScope(source, tensor_id))


def _copy_tensor(target: Any, tensor: Any, name: str) -> None:
    """A tensor that no operator makes."""
    view, info = target._pb_graph, tensor._pb_tensor.info
    if tensor._kind is TensorType.Const:
        view.addConstInit(name, info, np.array(tensor._host))
    elif tensor._kind is TensorType.Variable:
        view.addVarInit(name, info, np.array(tensor._host), tensor._pb_tensor.getVariableSettings())
    elif tensor._kind is TensorType.Stream:
        view.addStream(name, info)
    else:
        view.addActGrad(name)
        view.getTensor(name).info = info


def _copy_operator(target: Any, source: Any, op: Any) -> Any:
    made = op.cloneIntoGraph(target._pb_graph)
    for i, t in op._inputs().items():
        made.connectInTensor(i, _renamed(target, source, t.id))
    for i, t in op._outputs().items():
        made.createAndConnectOutTensor(i, _renamed(target, source, t.id))
    made.setup()
    return made


def removeScope(graph: Any, tensor_id: str) -> str:
    """The name in the graph."""
    return tensor_id.removeprefix(f"{graph.id}/") if graph.id else tensor_id


def addScope(graph: Any, name: str) -> str:
    """The full id."""
    return f"{graph.id}/{name}" if graph.id else name
