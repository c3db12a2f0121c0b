"""View of a tensor with the interface of the internal IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from ...model.tensor_info import _TensorInfoCore as TensorInfo
from ...model.variable_settings import VariableSettings
from .._building.bindings import above
from ..dtypes import dtype as Dtype
from ..dtypes import float32
from ..tensor import Tensor as PopxlTensor
from .alias import aliases
from .enums import TensorType, TileSet, VariableUpdateType
from .operands import op_of
from .placement import placement
from .roles import TensorRoles
from .values import Region, RemoteBufferInfo, RemotePlace

_TYPES = "Float64 Float32 Float16 Int64 Int32 Int16 Int8 UInt64 UInt32 UInt16 UInt8 Bool"


@above.enter("tensor_view")
def view(tensor: PopxlTensor) -> Tensor:
    """The one view of a tensor."""
    found = tensor.__dict__.get("_view")
    if found is None:
        found = tensor.__dict__["_view"] = object.__new__(Tensor)
        found._tensor = tensor
    return found


class Consumers:
    """Operators that read a tensor."""

    def __init__(self, tensor: PopxlTensor) -> None:
        self._tensor = tensor

    def getOps(self) -> list[Any]:
        nodes = dict.fromkeys(node for node, _ in self._tensor._value.uses())
        return sorted((op_of(n) for n in nodes), key=lambda op: op.id)

    def getTotal(self) -> int:
        return len(self.getOps())


class Tensor(TensorRoles):
    """View of one tensor; ``Tensor(id, type, graph)`` makes a free one, which is not among the graph's tensors."""

    _tensor: PopxlTensor

    def __init__(self, tensor_id: str, *given: Any, debug_context: Any = None) -> None:
        """A tensor of a type, of a graph.

        In place of the type settings make it a variable; before them may stand how it is updated, or the id of the
        tensor that it is copied from.
        """
        *how, what, graph = given[: 1 + next((i for i, x in enumerate(given) if hasattr(x, "_graph")), 0)]
        owner = graph._graph
        tensor = object.__new__(PopxlTensor)
        tensor._value, tensor._graph = owner._new_value(tensor_id, (), float32), owner
        tensor._meta_shape, tensor._kind = (), TensorType.Variable if isinstance(what, VariableSettings) else what
        if isinstance(what, VariableSettings):
            tensor.__dict__["_settings"] = what
        tensor._value.meta["tensor"] = tensor
        tensor.__dict__["_view"] = self
        self._tensor = tensor
        for update in how:
            self.setVariableUpdateType(VariableUpdateType.Copy if isinstance(update, str) else update)
            if isinstance(update, str):
                self.setCopyFromTensor(update)

    def clone(self, graph: Any) -> Tensor:
        """A tensor of the same type and info, of another graph, named ``clone_<id>``."""
        made = Tensor(f"clone_{self.id}", self.tensorType(), graph)
        made.info = self.info
        return made

    @property
    def id(self) -> str:
        return self._tensor.id

    def str(self) -> str:
        return self._tensor.id

    __str__ = str

    @property
    def info(self) -> Any:
        t = self._tensor
        return TensorInfo(t.dtype._pb_dtype, list(t.shape), list(t.meta_shape))

    @info.setter
    def info(self, info: Any) -> None:
        t = self._tensor
        t._value.shape, t._value.type = ir.Shape(info.shape()), ir.TensorType(Dtype.as_dtype(info.dataType())._onnx)
        t._meta_shape = tuple(info.metaShape())

    def tensorType(self) -> TensorType:
        return self._tensor._kind

    def tensor_type(self) -> str:
        return self._tensor._kind.name

    def hasProducer(self) -> bool:
        return self._tensor._value.producer() is not None

    def getProducer(self) -> Any:
        producer = self._tensor._value.producer()
        if producer is None:
            raise popart_exception(f"No producer for tensor {self.id} to return")
        return op_of(producer)

    @property
    def consumers(self) -> Consumers:
        return Consumers(self._tensor)

    def getGraph(self) -> Any:
        return self._tensor._graph._pb_graph

    getGraph_const = getGraph

    def getIr(self) -> Any:
        return self._tensor.ir._pb_ir

    getIr_const = getIr

    def hasVirtualGraphId(self) -> bool:
        return placement(self._tensor)[0] is not None

    def getVirtualGraphId(self) -> int:
        found = placement(self._tensor)[0]
        if found is None:
            raise popart_exception(f"Invalid call to getVirtualGraphId, Tensor {self.id} does not have one")
        return found

    def getVirtualGraphIdUnsafe(self) -> int:
        found = placement(self._tensor)[0]
        return -1 if found is None else found

    def getVirtualGraphIdAndTileSetUnsafe(self) -> tuple[int, TileSet]:
        return self.getVirtualGraphIdUnsafe(), placement(self._tensor)[1]

    def getVirtualGraphIdAndTileSet(self) -> tuple[int, TileSet]:
        return self.getVirtualGraphId(), placement(self._tensor)[1]

    def isInSyncWithIPU(self) -> bool:
        return self._tensor.in_sync_with_ipu

    def hasTensorData(self) -> bool:
        return hasattr(self._tensor, "_host")

    def writeTensorData(self, array: np.ndarray, session: Any = None) -> None:
        self._tensor._host[...] = array  # pyright: ignore[reportAttributeAccessIssue]

    def _data(self) -> np.ndarray:
        if not self.hasTensorData():
            raise popart_exception(f"Tensor {self.id!r} has no data")
        return cast("Any", self._tensor)._host

    def getDataViaGraphTraversal(self) -> np.ndarray:
        """The value that follows from constants alone; popart_exception if it depends on what a run tells."""
        return above.constant_value(self._tensor)

    def setTensorLocationInfo(self, location: Any, buffer: int, offset: int) -> None:
        self._tensor._remote = RemotePlace(buffer, offset, None)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def tensorLocationInfo(self) -> LocationInfo:
        """Where the tensor is stored; a view, and what is assigned is copied."""
        return LocationInfo(self._tensor)

    @tensorLocationInfo.setter
    def tensorLocationInfo(self, info: LocationInfo) -> None:
        self._tensor._remote = info._place()  # pyright: ignore[reportAttributeAccessIssue]

    def isModified(self, considerLoopInput: bool = True) -> bool:
        return any(
            op.modifiesIndex(i) for op in self.consumers.getOps() for i, t in op._inputs().items() if t == self._tensor
        )

    def modifiedRegionsByOps(self, ops: Sequence[Any], aliasModel: Any = None) -> list[Region]:
        """Where these operators, or those of these ids, write into the tensor or into what shares its storage.

        The whole tensor, also where only the part that a view shows is written: that bound needs no model of aliases.
        """
        wanted = {getattr(op, "id", op) for op in ops}
        written = any(
            op.id in wanted and op.modifiesIndex(i)
            for alias in aliases(self._tensor)
            for op in view(alias).consumers.getOps()
            for i, t in op._inputs().items()
            if t == alias
        )
        return [Region.getFull(self.info.shape())] if written else []

    def isAliased(self) -> bool:
        return self.anyAlias(lambda t: t.id != self.id)

    def anyAlias(self, predicate: Callable[[Any], bool] | None = None) -> bool:
        return any(predicate is None or predicate(view(t)) for t in aliases(self._tensor))

    def isHostLoadTensor(self) -> bool:
        producer = self._tensor._value.producer()
        return producer is not None and producer.op_type == "HostLoad"


def _reader(kind: str) -> Any:
    def read(self: Tensor) -> np.ndarray:
        return np.asarray(self._data()).astype(np.dtype(kind.lower()), copy=False)

    return read


for _kind in _TYPES.split():
    setattr(Tensor, f"dataAs{_kind}", _reader(_kind))


class LocationInfo:
    """Storage of a tensor; without one it stands for itself, on the chip until it is told a buffer."""

    def __init__(self, tensor: Any = None) -> None:
        self._tensor = SimpleNamespace() if tensor is None else tensor

    def _place(self) -> RemotePlace | None:
        return getattr(self._tensor, "_remote", None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocationInfo) and self._place() == other._place()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def isRemote(self) -> bool:
        return self._place() is not None

    def isSharded(self) -> bool:
        place = self._place()
        return place is not None and place.shards is not None

    def getRemoteBufferInfo(self) -> tuple[int, int]:
        place = self._place()
        return (0, 0) if place is None else (place.buffer, place.offset)

    def setRemoteBufferInfo(self, buffer: int, offset: int) -> None:
        self._tensor._remote = RemotePlace(buffer, offset, None)


def buffer_info(buffer: Any) -> RemoteBufferInfo:
    """A remote buffer's entry type and count."""
    return RemoteBufferInfo(TensorInfo(buffer.tensor_dtype._pb_dtype, list(buffer.tensor_shape)), buffer.entries)
