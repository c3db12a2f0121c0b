"""All tensors of a graph, and their data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import popart_exception
from ...model.variable_settings import VariableSettings
from .._building.bindings import above
from .._building.tensor import Tensor
from ..dtypes import dtype as Dtype
from ..dtypes import float32
from .cleanup import isolated_remover
from .enums import TensorType
from .values import Scope


class AddsTensors:
    """Base of views with methods that add tensors; `_owner` is the graph."""

    @property
    def _owner(self) -> Any:
        raise NotImplementedError

    def _fresh(self, tensor_id: str) -> str:
        if tensor_id in self._owner._tensors:
            raise popart_exception(f"tensor {tensor_id} already in graph {self._owner.id!r}")
        return tensor_id

    def addActGrad(self, tensor_id: str, debug_context: Any = None) -> None:
        """Add a tensor that an operator will produce; it is a FLOAT scalar until it gets another info."""
        value = self._owner._new_value(self._fresh(tensor_id), (), float32)
        Tensor._make(self._owner, value)

    def addVarInit(self, tensor_id: str, info: Any, data: Any, *settings: Any) -> None:
        """A variable with its first value; `settings` may hold its VariableSettings and a debug context."""
        self._add(tensor_id, TensorType.Variable, info, data)
        given = next((s for s in settings if isinstance(s, VariableSettings)), None)
        if given is not None:
            self._owner._tensors[tensor_id].__dict__["_settings"] = given

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

    def contains(self, tensor_id: str, scope: Scope | None = None) -> bool:
        """Whether there is a tensor of this id or, given a scope, one that `find` finds."""
        return tensor_id in self._graph._tensors if scope is None else self._found(tensor_id, scope) is not None

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

    removeIsolated = isolated_remover(lambda view: [view._graph])

    def append(self, stream: Any) -> None:
        """Write the ids into a text stream."""
        stream.write("[" + " ".join(self._graph._tensors) + "]")

    def find(self, name: str, scope: Scope) -> str:
        """The id that a name has in a scope or in the nearest scope around it."""
        found = self._found(name, scope)
        if found is None:
            tried = _ids_around(name, scope)
            raise popart_exception(f"Could not find tensor with name {name} in scope {scope}. Tried {tried}")
        return found

    def _found(self, name: str, scope: Scope) -> str | None:
        return next((i for i in _ids_around(name, scope) if i in self._graph._tensors), None)

    def makeConstInit(self, tensor_id: str, data: Any) -> None:
        """A tensor without producer, with or without data, becomes a constant with these data; its readers stay."""
        old = self._graph.get_tensor(tensor_id)
        if old._value.producer() is not None:
            raise popart_exception(f"cannot make an existing tensor const init: {tensor_id} has a producer")
        del self._graph._tensors[tensor_id]
        self._graph._graph.initializers.pop(tensor_id, None)
        info, old._value.name = old._pb_tensor.info, None
        self._add(tensor_id, TensorType.Const, info, getattr(data, "array", data))
        old._value.replace_all_uses_with(self._graph._tensors[tensor_id]._value, replace_graph_outputs=True)


def _ids_around(name: str, scope: Scope) -> list[str]:
    """The ids of a name in a scope and in those around it, the innermost first."""
    names = scope._names
    return ["/".join((*names[:n], name)) for n in range(len(names), -1, -1)]


class TensorData:
    """Data of a variable or constant: a view of an array, or with a tensor info a copy of its data."""

    def __init__(self, *given: Any) -> None:
        info, data = given if len(given) == 2 else (None, given[0])
        self.array = np.asarray(data) if info is None else np.array(data, info.numpy_dtype()).reshape(info.shape())

    def resetData(self, *given: Any) -> None:
        """Replace the data; arguments as those of the constructor. Of the same type and shape, they are overwritten."""
        new = TensorData(*given).array
        if (new.dtype, new.shape) == (self.array.dtype, self.array.shape):
            self.array[...] = new
        else:
            self.array = new
