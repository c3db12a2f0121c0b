"""All tensors of a graph, and their data."""

from __future__ import annotations

from typing import Any

import numpy as np

from .enums import TensorType


class Tensors:
    """View of the tensors of one graph."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def get(self, tensor_id: str) -> Any:
        return self._graph.get_tensor(tensor_id)._pb_tensor

    def contains(self, tensor_id: str, scope: Any = None) -> bool:
        return tensor_id in self._graph._tensors

    def n(self) -> int:
        return len(self._graph._tensors)

    def getIds(self, kind: TensorType) -> list[str]:
        return [t.id for t in self._graph.tensors if t._kind is kind]

    def getOfType(self, kind: TensorType) -> list[Any]:
        return [t._pb_tensor for t in self._graph.tensors if t._kind is kind]

    def getAllTensorIds(self) -> list[str]:
        return list(self._graph._tensors)

    def getNoProducerIds(self) -> list[str]:
        return [t.id for t in self._graph.tensors if t._value.producer() is None]

    def remove(self, tensor_id: str) -> None:
        self._graph._remove_tensor(self._graph.get_tensor(tensor_id))


class TensorData:
    """Data of a variable or constant."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def resetData(self, array: Any) -> None:
        self.array[...] = array
