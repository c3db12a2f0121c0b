"""Where a tensor is stored."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ._internal.enums import ExecutionContext as ExecutionContext
from ._internal.enums import TileSet as TileSet


class TensorStorage(Enum):
    """On the chip or in remote memory."""

    OnChip = "OnChip"
    OffChip = "OffChip"


class ReplicatedTensorSharding(Enum):
    """Whether replicas keep one shard each instead of the whole tensor."""

    On = "On"
    Off = "Off"


class TensorLocation:
    """Storage and sharding of a tensor.

    Parameters
    ----------
    storage : TensorStorage
        Memory that holds the tensor.
    replicated_tensor_sharding : ReplicatedTensorSharding
        Sharding over replicas.
    """

    def __init__(
        self,
        storage: TensorStorage = TensorStorage.OnChip,
        replicated_tensor_sharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off,
    ) -> None:
        self._storage = storage
        self._replicated_tensor_sharding = replicated_tensor_sharding

    @property
    def storage(self) -> TensorStorage:
        """Memory that holds the tensor."""
        return self._storage

    @property
    def replicated_tensor_sharding(self) -> ReplicatedTensorSharding:
        """Sharding over replicas."""
        return self._replicated_tensor_sharding

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, TensorLocation):
            return NotImplemented
        return (self.storage, self.replicated_tensor_sharding) == (other.storage, other.replicated_tensor_sharding)

    def __hash__(self) -> int:
        return hash((self.storage, self.replicated_tensor_sharding))

    def __repr__(self) -> str:
        return f"TensorLocation({self.storage}, {self.replicated_tensor_sharding})"
