"""All tensors of a graph, and their data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import popart_exception
from .._bindings import above
from .._tensor import Tensor
from ..dtypes import dtype as Dtype
from ..dtypes import float32
from .enums import TensorType


class AddsTensors:
    """Base of views that tensors are added through; `_owner` is the graph."""

    @property
    def _owner(self) -> Any:
        raise NotImplementedError

    def _fresh(self, tensor_id: str) -> str:
        if tensor_id in self._owner._tensors:
            raise popart_exception(f"tensor {tensor_id} already in graph {self._owner.id!r}")
        return tensor_id

    def addActGrad(self, tensor_id: str, debug_context: Any = None) -> None:
        """A tensor that some operator is to produce; it is a FLOAT scalar until it is given another info."""
        value = self._owner._new_value(self._fresh(tensor_id), (), float32)
        Tensor._make(self._owner, value)

    def addVarInit(self, tensor_id: str, info: Any, data: Any, *settings: Any) -> None:
        """A variable with its first value."""
        self._add(tensor_id, TensorType.Variable, info, data)

    def addConstInit(self, tensor_id: str, info: Any, data: Any, debug_context: Any = None) -> None:
        """A constant."""
        self._add(tensor_id, TensorType.Const, info, data)

    def addStream(self, tensor_id: str, info: Any, *settings: Any) -> None:
        """A tensor that stands for a stream."""
        kind = Dtype.as_dtype(info.dataType())
        value = self._owner._new_value(self._fresh(tensor_id), info.shape(), kind)
        Tensor._make(self._owner, value, kind=TensorType.Stream)

    def _add(self, tensor_id: str, kind: TensorType, info: Any, data: Any) -> None:
        dtype = Dtype.as_dtype(info.dataType())
        above.add_with_data(self._owner, self._fresh(tensor_id), kind, data, dtype, tuple(info.shape()))


class Tensors(AddsTensors):
    """View of the tensors of one graph."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph._graph

    @property
    def _owner(self) -> Any:
        return self._graph

    def get(self, tensor_id: str) -> Any:
        return self._graph.get_tensor(tensor_id)._pb_tensor

    def contains(self, tensor_id: str, scope: Any = None) -> bool:
        return tensor_id in self._graph._tensors

    def n(self) -> int:
        return len(self._graph._tensors)

    def getIds(self, kind: TensorType) -> list[str]:
        return [t.id for t in self._graph.tensors if t._kind is kind]

    def getOfType(self, kind: TensorType | list[TensorType]) -> list[Any]:
        kinds = kind if isinstance(kind, (list, tuple)) else [kind]
        return [t._pb_tensor for t in self._graph.tensors if t._kind in kinds]

    def getAll(self) -> list[Any]:
        return [t._pb_tensor for t in self._graph.tensors]

    def getAllTensorIds(self) -> list[str]:
        return list(self._graph._tensors)

    def getNoProducerIds(self) -> list[str]:
        return [t.id for t in self._graph.tensors if t._value.producer() is None]

    def remove(self, tensor_id: str) -> None:
        self._graph._remove_tensor(self._graph.get_tensor(tensor_id))


class TensorData:
    """Data of a variable or constant: a view of an array, or with a tensor info a copy of its data."""

    def __init__(self, *given: Any) -> None:
        info, data = given if len(given) == 2 else (None, given[0])
        self.array = np.asarray(data) if info is None else np.array(data, info.numpy_dtype()).reshape(info.shape())

    def resetData(self, *given: Any) -> None:
        """Overwrite the data; arguments as those of the constructor without or with a tensor info."""
        self.array[...] = given[-1]
