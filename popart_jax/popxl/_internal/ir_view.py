"""View of an Ir with the interface of the internal IR."""

from __future__ import annotations

from typing import Any

from ...errors import popart_exception
from ...logs import module_logger
from .._building.bindings import above
from ..dtypes import dtype as Dtype
from ..ir import Ir as PopxlIr
from .cleanup import isolated_remover, remove_unreachable_graphs
from .exchange import parts
from .operands import tensor_of
from .patterns import Patterns, PatternsLevel, apply, apply_inplace
from .schedule import print_schedule
from .serialise import to_json
from .tensor_view import buffer_info
from .transforms import by_name
from .values import GraphId


@above.enter("ir_view")
def view(owner: PopxlIr) -> Ir:
    """The one view of an Ir."""
    found = owner.__dict__.get("_view")
    if found is None:
        found = Ir(owner)
    return found


class Ir:
    """View of one Ir; without an owner, of a new one."""

    def __init__(self, owner: PopxlIr | None = None) -> None:
        self._ir = PopxlIr() if owner is None else owner
        self._ir.__dict__["_view"] = self
        self._data_flow: Any = None
        self._patterns: Any = None
        self._anchors: set[str] = set()

    def _inference_session(self, device: Any, name: str) -> Any:
        return self._ir._inference_session(device, name)

    def getId(self) -> int:
        return self._ir.id

    def getSessionOptions(self) -> Any:
        return self._ir._options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ir) and self._ir.id == other._ir.id

    def __hash__(self) -> int:
        return hash(self._ir.id)

    # --- graphs ---------------------------------------------------------------------------------------------------

    def getMainGraph(self) -> Any:
        return self._ir.main_graph._pb_graph

    def getAllGraphs(self) -> list[Any]:
        return [g._pb_graph for g in self._ir._graphs.values()]

    def hasGraph(self, graph_id: Any) -> bool:
        return str(graph_id) in self._ir._graphs

    def getGraph(self, graph_id: Any) -> Any:
        if not self.hasGraph(graph_id):
            raise popart_exception(f"No graph with id {graph_id!r}")
        return self._ir._graphs[str(graph_id)]._pb_graph

    def createGraph(self, name: Any) -> Any:
        if self.hasGraph(name):
            raise popart_exception(f"Graph({name}) is already in Ir")
        return self._ir._new_graph(str(name))._pb_graph

    def createUniqueSubgraphId(self, base: Any) -> Any:
        return GraphId(self._ir._subgraph_id(str(base)))

    def removeGraph(self, graph_id: Any) -> None:
        self._ir._graphs.pop(str(graph_id), None)

    def removeIsolatedGraphs(self) -> None:
        remove_unreachable_graphs(self._ir)

    removeIsolatedTensors = isolated_remover(lambda view: list(view._ir._graphs.values()))

    # --- tensors --------------------------------------------------------------------------------------------------

    def getTensor(self, tensor_id: str) -> Any:
        for graph in self._ir._graphs.values():
            if tensor_id in graph._tensors:
                return graph._tensors[tensor_id]._pb_tensor
        raise popart_exception(f"No tensor with id {tensor_id!r}")

    def createIntermediateTensorId(self, base_id: str) -> str:
        return self._ir._suffixed(base_id)

    def _exchanges(self, op_type: str) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for graph in self._ir._graphs.values():
            for op in graph._ops.values():
                for node in parts(op._node):
                    if node.op_type == op_type:
                        value: Any = node.outputs[0] if op_type == "HostLoad" else node.inputs[0]
                        found.setdefault(node.attributes["stream"].as_string(), []).append(tensor_of(value)._pb_tensor)
        return found

    def getHostLoadTensors(self) -> dict[str, list[Any]]:
        return self._exchanges("HostLoad")

    def getHostStoreTensors(self) -> dict[str, list[Any]]:
        return self._exchanges("HostStore")

    def dataStreamTensors(self) -> list[Any]:
        return [s._stream_tensor._pb_tensor for s in self._ir._streams.values()]

    # --- remote buffers -------------------------------------------------------------------------------------------

    def getAllRemoteBufferInfos(self) -> dict[int, Any]:
        return {i: buffer_info(b) for i, b in self._ir._buffers.items()}

    def getRemoteBufferInfo(self, number: int) -> Any:
        found = self.getAllRemoteBufferInfos()
        if number not in found:
            raise popart_exception(f"There is no remote buffer {number}: this Ir has {sorted(found)}.")
        return found[number]

    def setRemoteBufferInfo(self, number: int, info: Any) -> None:
        entry = info.TensorInfo
        above.remote_buffer_of(self._ir, number, tuple(entry.shape()), Dtype.as_dtype(entry.dataType()), info.repeats)

    # --- compilation ----------------------------------------------------------------------------------------------

    def isPrepared(self) -> bool:
        return self._ir._prepared

    def setIsPrepared(self) -> None:
        self._ir._prepared = True

    def getDataFlow(self) -> Any:
        return self._data_flow if self._data_flow is not None else _DataFlow(self._ir)

    def setDataFlow(self, data_flow: Any) -> None:
        self._data_flow = data_flow
        self._ir.num_host_transfers = data_flow.batchesPerStep()

    def setDeviceInfo(self, device: Any) -> None:
        self._device = device

    def updateVertices(self) -> None:
        """Derived data are computed when they are needed."""

    def finalizeOpDebugInfo(self) -> None:
        """There is no debug information to close."""

    def logIr(self) -> None:
        for graph in self._ir._graphs.values():
            module_logger("ir").info("%s", print_schedule(graph))

    def setPatterns(self, patterns: Any) -> None:
        self._patterns = patterns

    def applyPreAliasPatterns(self, graph: Any) -> None:
        apply(graph._graph, self._patterns or Patterns(PatternsLevel.Default))

    def applyInplacePattern(self, graph: Any) -> None:
        apply_inplace(graph._graph)

    def applyTransform(self, name: Any, graph: Any) -> None:
        by_name(name)(graph)

    def dotCheckpoint(self, ir: Any, name: str) -> None:
        self._ir.dot_checkpoint(name)

    def addAnchor(self, tensor_id: str) -> None:
        self._anchors.add(tensor_id)

    def serializeToJSON(self) -> str:
        return to_json(self._ir._graphs.values())


class _DataFlow:
    """Data flow of an Ir without one of its own: its number of host transfers."""

    def __init__(self, owner: PopxlIr) -> None:
        self._ir = owner

    def isAnchored(self, tensor_id: str) -> bool:
        del tensor_id
        return False

    def art(self, tensor_id: str) -> Any:
        raise popart_exception(f"Tensor {tensor_id} is not an anchor")

    def batchesPerStep(self) -> int:
        return self._ir.num_host_transfers

    def setBatchesPerStep(self, n: int) -> None:
        self._ir.num_host_transfers = n
