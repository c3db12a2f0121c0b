"""View of a graph with the interface of the internal IR."""

from __future__ import annotations

from typing import Any

from ...errors import popart_exception
from .._building.bindings import above
from .._building.tensor import Tensor
from ..dtypes import dtype as Dtype
from ..graph import Graph as PopxlGraph
from .cleanup import isolated_remover
from .copy_graph import copy_graph
from .create_op import creator
from .enums import TensorType
from .schedule import schedule
from .tensors_view import AddsTensors
from .values import GraphId, Scope


@above.enter("graph_view")
def view(graph: PopxlGraph) -> Graph:
    """The one view of a graph."""
    found = graph.__dict__.get("_view")
    if found is None:
        found = Graph(graph)
    return found


class Graph(AddsTensors):
    """View of one graph; the members that write change the graph itself."""

    def __init__(self, graph: Any, graph_id: Any = None) -> None:
        """The view of a graph; with an id, of a new graph of the Ir that is given instead."""
        self._graph: PopxlGraph = graph if graph_id is None else graph.createGraph(graph_id)._graph
        self._graph.__dict__["_view"] = self

    @property
    def _owner(self) -> PopxlGraph:
        return self._graph

    @property
    def id(self) -> GraphId:
        return GraphId(self._graph.id)

    def getIr(self) -> Any:
        return self._graph.ir._pb_ir

    def getScope(self) -> Scope:
        return Scope((self._graph.id,) if self._graph.id else ())

    def getGraphString(self) -> str:
        return f"subgraph '{self._graph.id}'" if self._graph.id else "the main graph"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self._graph is other._graph

    def __hash__(self) -> int:
        return hash(self._graph)

    # --- operators ------------------------------------------------------------------------------------------------

    def getOps(self) -> list[Any]:
        return [self._graph._ops[i] for i in sorted(self._graph._ops)]

    def getOpIds(self) -> list[int]:
        return sorted(self._graph._ops)

    def getOp(self, op_id: int) -> Any:
        if op_id not in self._graph._ops:
            raise popart_exception(f"No op with id {op_id} in {self.getGraphString()}")
        return self._graph._ops[op_id]

    def getOpSchedule(self, requireOptimalSchedule: Any = True) -> list[Any]:
        return schedule(self._graph)

    def eraseOp(self, op_id: int) -> None:
        self._graph._erase(self.getOp(op_id))

    def copyFrom(self, other: Graph, copyInputMarkings: Any = True, copyOutputMarkings: Any = True) -> None:
        """Copy what another graph holds into this one; its inputs and outputs become this one's unless told not to."""
        copy_graph(self._graph, other._graph, bool(copyInputMarkings), bool(copyOutputMarkings))

    def topoCons(self) -> Any:
        return self._graph._topo_cons

    def getCalledGraphs(self) -> list[Any]:
        return [g._pb_graph for g in self._graph.called_graphs]

    def __getattr__(self, name: str) -> Any:
        for prefix in ("createConnectedOp_", "createOp_"):
            if name.startswith(prefix):
                return creator(self._graph, name.removeprefix(prefix), connected=prefix == "createConnectedOp_")
        raise AttributeError(name)

    # --- tensors --------------------------------------------------------------------------------------------------

    def getTensor(self, tensor_id: str) -> Any:
        return self._graph.get_tensor(tensor_id)._pb_tensor

    def getTensors(self) -> list[Any]:
        return [t._pb_tensor for t in self._graph.tensors]

    def getTensorsOfType(self, kind: TensorType) -> list[Any]:
        return [t._pb_tensor for t in self._graph.tensors if t._kind is kind]

    def __contains__(self, tensor_id: str) -> bool:
        return tensor_id in self._graph._tensors

    def getInputIds(self) -> list[str]:
        return [t.id for t in self._graph.inputs]

    def getInputId(self, i: int) -> str:
        return self._graph.inputs[i].id

    def getInputIndex(self, tensor_id: str) -> int:
        return self._index(self.getInputIds(), tensor_id, "input")

    def _index(self, ids: list[str], tensor_id: str, what: str) -> int:
        if tensor_id not in ids:
            raise popart_exception(f"{tensor_id!r} is no {what} of {self.getGraphString()}; they are {ids}")
        return ids.index(tensor_id)

    def getInputTensor(self, i: int) -> Any:
        return self._graph.inputs[i]._pb_tensor

    def hasInputId(self, tensor_id: str) -> bool:
        return tensor_id in self.getInputIds()

    def addInput(self, *where: Any) -> None:
        """``addInput([index,] tensor_id, info[, overwrite])``: a new input, the last one unless an index is given."""
        inputs = self._graph._graph.inputs
        given: list[Any] = [*([] if len(where) > 2 else [len(inputs)]), *where, False]
        index, tensor_id, info, overwrite = given[:4]
        value = self._graph._new_value(self._fresh(tensor_id), info.shape(), Dtype.as_dtype(info.dataType()))
        _place(inputs, index, value, overwrite)
        Tensor._make(self._graph, value, info.metaShape())

    def markAsInput(self, tensor_id: str) -> None:
        """A tensor without a producer becomes the last input."""
        self._graph._graph.inputs.append(self._graph.get_tensor(tensor_id)._value)

    def removeInput(self, which: Any) -> None:
        """The tensor stays in the graph, as one without a producer."""
        del self._graph._graph.inputs[self.getInputIndex(which) if isinstance(which, str) else which]

    def getOutputIds(self) -> list[str]:
        return [t.id for t in self._graph.outputs]

    def getOutputId(self, i: int) -> str:
        return self._graph.outputs[i].id

    def getOutputIndex(self, tensor_id: str) -> int:
        return self._index(self.getOutputIds(), tensor_id, "output")

    def getOutputTensor(self, i: int) -> Any:
        return self._graph.outputs[i]._pb_tensor

    def hasOutputId(self, tensor_id: str) -> bool:
        return tensor_id in self.getOutputIds()

    def markAsOutput(self, *where: Any) -> None:
        """``markAsOutput([index,] tensor_id[, overwrite])``: an output, the last one unless an index is given."""
        outputs = self._graph._graph.outputs
        given: list[Any] = [*([] if len(where) > 1 else [len(outputs)]), *where, False]
        index, tensor_id, overwrite = given[:3]
        _place(outputs, index, self._graph.get_tensor(tensor_id)._value, overwrite)

    def removeOutput(self, which: Any) -> None:
        del self._graph._graph.outputs[self.getOutputIndex(which) if isinstance(which, str) else which]

    # --- placement and marks --------------------------------------------------------------------------------------

    def getAllVirtualGraphIds(self, include_invalid: bool = False) -> set[int]:
        found = {op._settings.vgraphId for op in self._graph._ops.values()}
        return {-1 if v is None else v for v in found if v is not None or include_invalid}

    def canBeRecursivelyAutodiffed(self) -> bool:
        return self._graph._can_autodiff

    def setCanBeRecursivelyAutodiffed(self, value: bool) -> None:
        self._graph._can_autodiff = value

    removeIsolatedTensors = isolated_remover(lambda view: [view._graph])


def _place(values: Any, index: int, value: Any, overwrite: bool) -> None:
    """Put a value at an index of a list, before the present one or (`overwrite`) instead of it."""
    if overwrite and index < len(values):
        values[index] = value
    else:
        values.insert(index, value)
