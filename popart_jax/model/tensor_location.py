"""Where tensors live, and how inputs are transferred."""

from __future__ import annotations

from typing import Any, overload

from .._calls import overloaded
from ..enums import ExchangeStrategy, ReplicatedStreamMode, ReplicatedTensorSharding, TensorStorage, TileSet
from .settings import Settings
from .variable_settings import CommGroup


class TensorLocation(Settings):
    """Memory of a tensor: on chip or not, which tiles, sharded over replicas or not."""

    storage: TensorStorage
    loadTileSet: TileSet
    storageTileSet: TileSet
    replicatedTensorSharding: ReplicatedTensorSharding
    shardingDomain: CommGroup

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, storage: TensorStorage) -> None: ...
    @overload
    def __init__(self, storage: TensorStorage, replicatedTensorSharding: ReplicatedTensorSharding) -> None: ...
    @overload
    def __init__(
        self, storage: TensorStorage, replicatedTensorSharding: ReplicatedTensorSharding, shardingDomain: CommGroup
    ) -> None: ...
    @overload
    def __init__(
        self,
        storage: TensorStorage,
        loadTileSet: TileSet,
        storageTileSet: TileSet,
        replicatedTensorSharding: ReplicatedTensorSharding,
    ) -> None: ...
    @overload
    def __init__(
        self,
        storage: TensorStorage,
        loadTileSet: TileSet,
        storageTileSet: TileSet,
        replicatedTensorSharding: ReplicatedTensorSharding,
        shardingDomain: CommGroup,
    ) -> None: ...
    @overloaded
    def __init__(
        self,
        storage: Any = TensorStorage.OnChip,
        loadTileSet: Any = TileSet.Compute,
        storageTileSet: Any = TileSet.Compute,
        replicatedTensorSharding: Any = ReplicatedTensorSharding.Off,
        shardingDomain: Any = None,
    ) -> None:
        self.storage = storage
        self.loadTileSet = loadTileSet
        self.storageTileSet = storageTileSet
        self.replicatedTensorSharding = replicatedTensorSharding
        self.shardingDomain = shardingDomain or CommGroup()

    def isRemote(self) -> bool:
        """Whether it is off chip."""
        return self.storage is TensorStorage.OffChip

    def serialize(self) -> list[int]:
        """The integers that stand for this location in a model file."""
        domain = self.shardingDomain
        fields = (self.storage, self.loadTileSet, self.storageTileSet, self.replicatedTensorSharding, domain.type)
        return [*(int(f) for f in fields), domain.replicaGroupSize]


class TensorLocationSettings(Settings):
    """Location of a kind of tensors, with the sizes below which they stay on chip or unsharded."""

    location: TensorLocation
    minElementsForOffChip: int
    minElementsForReplicatedTensorSharding: int

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(
        self,
        location: TensorLocation,
        minElementsForOffChip: int = 2,
        minElementsForReplicatedTensorSharding: int = 8192,
    ) -> None: ...
    @overload
    def __init__(
        self,
        storage: TensorStorage,
        minElementsForOffChip: int = 2,
        minElementsForReplicatedTensorSharding: int = 8192,
    ) -> None: ...
    @overloaded
    def __init__(
        self,
        location: Any = None,
        minElementsForOffChip: int = 2,
        minElementsForReplicatedTensorSharding: int = 8192,
        storage: Any = None,
    ) -> None:
        self.location = location or (TensorLocation() if storage is None else TensorLocation(storage))
        self.minElementsForOffChip = minElementsForOffChip
        self.minElementsForReplicatedTensorSharding = minElementsForReplicatedTensorSharding


class InputSettings:
    """How a streamed input reaches the replicas.

    The keyword of the stream mode is ``relicatedStreamMode``, spelled as upstream spells it.
    """

    @overload
    def __init__(
        self, tileSet: TileSet = TileSet.Compute, exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime
    ) -> None: ...
    @overload
    def __init__(self, relicatedStreamMode: ReplicatedStreamMode = ReplicatedStreamMode.Replicate) -> None: ...
    @overloaded
    def __init__(
        self,
        tileSet: Any = TileSet.Compute,
        exchangeStrategy: Any = ExchangeStrategy.JustInTime,
        relicatedStreamMode: Any = ReplicatedStreamMode.Replicate,
    ) -> None:
        self._tiles, self._exchange, self._mode = tileSet, exchangeStrategy, relicatedStreamMode

    def tileSet(self) -> TileSet:
        """Tiles the input is loaded to."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the input is loaded."""
        return self._exchange

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Whether each replica has its own data."""
        return self._mode

    def __repr__(self) -> str:
        return f"InputSettings({self._tiles}, {self._exchange}, {self._mode})"
