"""``report.compilation``: target, graph, tiles, IPUs, always-live variables, liveness, programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

from ipu_model.pva.programs import (
    ComputeSet,
    Exchange,
    Program,
    VertexType,
    compute_sets,
    exchanges,
    read,
    vertex_types,
)

ARCHITECTURES = {"ipu1": "Ipu1", "ipu2": "Ipu2", "ipu21": "Ipu21"}


@dataclass(frozen=True)
class Variable:
    """A variable by name and size in bytes; `ipu`, `tiles` and the steps it lives through are additions of ours."""

    name: str
    size: int
    ipu: int = 0
    tiles: int = 0
    bytesOnFullestTile: int = 0
    firstStep: int = 0
    lastStep: int = 0

    def bytes_on(self, tile: int, tiles_per_ipu: int) -> int:
        """Bytes on a tile: the first of its tiles is the fullest, the others hold the rest evenly."""
        ipu, k = divmod(tile, tiles_per_ipu)
        if ipu != self.ipu or k >= self.tiles:
            return 0
        if k == 0 or self.tiles == 1:
            return self.bytesOnFullestTile
        return round((self.size - self.bytesOnFullestTile) / (self.tiles - 1))


def _on_tile(variables: Iterable[Variable], tile: int, tiles_per_ipu: int) -> list[Variable]:
    """The parts of variables that lie on a tile, largest first."""
    sizes = ((v, v.bytes_on(tile, tiles_per_ipu)) for v in variables)
    return sorted((replace(v, size=n) for v, n in sizes if n), key=lambda v: -v.size)


@dataclass(frozen=True)
class ProgramStep:
    """A step of the liveness report; temporaries of the operation are one of its variables."""

    program: Program
    notAlwaysLiveMemory: SimpleNamespace
    notAlwaysLiveVariables: tuple[Variable, ...]
    tilesPerIpu: int

    def notAlwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """Variables with a part on a tile; their size is the part's."""
        return _on_tile(self.notAlwaysLiveVariables, tile, self.tilesPerIpu)

    def notAlwaysLiveMemoryForTile(self, tile: int) -> SimpleNamespace:
        """Bytes of the variables that lie on a tile."""
        return SimpleNamespace(bytes=sum(v.size for v in self.notAlwaysLiveVariablesForTile(tile)))


class Compilation:
    """The compile-time half of a profile."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self._graph = graph
        self._memory = graph["memory"]

    @cached_property
    def target(self) -> SimpleNamespace:
        """Tiles, IPUs, replicas, memory in bytes and clock in Hz of the machine."""
        t = self._graph["target"]
        return SimpleNamespace(
            numTiles=t["numTiles"], tilesPerIpu=t["tilesPerIPU"], tilesPerIPU=t["tilesPerIPU"],
            numIPUs=t["numIPUs"], numReplicas=t["numReplicas"], ipusPerReplica=t["numIPUs"] // t["numReplicas"],
            totalMemory=t["totalMemory"], bytesPerIPU=t["bytesPerIPU"], bytesPerTile=t["bytesPerTile"],
            clockFrequency=t["clockFrequency"], type=t["type"], minSyncDelay=t["minSyncDelay"],
            relativeSyncDelayByTile=t["relativeSyncDelayByTile"],
            architecture=ARCHITECTURES.get(t["architecture"], t["architecture"]),
        )  # fmt: skip

    @property
    def graph(self) -> SimpleNamespace:
        """Counts of the graph: compute sets, edges, vars and vertices."""
        return SimpleNamespace(**self._graph["graph"])

    @property
    def optimizationInfo(self) -> dict[str, int]:
        """``numFusedOperations``: elementwise operations that run inside the vertex of another."""
        return self._graph["optimizationInfo"]

    @cached_property
    def tiles(self) -> list[SimpleNamespace]:
        """Memory of every tile in bytes, in the order of the tile numbers over all IPUs."""
        return [self._tile(k) for k in range(len(self._memory["byTile"]["total"]))]

    @cached_property
    def ipus(self) -> list[SimpleNamespace]:
        """Tiles of every IPU, and their memory together in bytes."""
        per = self.target.tilesPerIpu
        parts = (self.tiles[start : start + per] for start in range(0, len(self.tiles), per))
        return [SimpleNamespace(tiles=tiles, memory=_sum([t.memory for t in tiles])) for tiles in parts]

    def _tile(self, k: int) -> SimpleNamespace:
        m = self._memory
        category = {
            name: SimpleNamespace(
                total=sum(part["nonOverlapped"][k] + part["overlapped"][k] for part in regions.values()),
                **{region: SimpleNamespace(**{kind: by[k] for kind, by in part.items()})
                   for region, part in regions.items()},
            )
            for name, regions in m["byCategory"].items()
        }  # fmt: skip
        total = SimpleNamespace(
            includingGaps=m["byTile"]["totalIncludingGaps"][k], excludingGaps=m["byTile"]["total"][k]
        )
        always = m["liveness"]["alwaysLive"]["bytesByTile"][k]
        peak = m["liveness"]["notAlwaysLive"]["maxBytesByTile"][k]
        memory = SimpleNamespace(
            total=total, category=SimpleNamespace(**category), alwaysLiveBytes=always, maxNotAlwaysLiveBytes=peak
        )
        return SimpleNamespace(memory=memory, maxNotAlwaysLiveBytes=peak, alwaysLiveBytes=always)

    @cached_property
    def alwaysLiveVariables(self) -> list[Variable]:
        """Variables that live for the whole program: weights, optimizer state and constants."""
        return [Variable(**v) for v in self._memory["liveness"]["alwaysLive"]["variables"]]

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """Always-live variables with a part on a tile; their size is the part's."""
        return _on_tile(self.alwaysLiveVariables, tile, self.target.tilesPerIpu)

    @cached_property
    def livenessProgramSteps(self) -> list[ProgramStep]:
        """Program steps in order, each with the bytes and variables that live only for a while."""
        live = self._memory["liveness"]["notAlwaysLive"]
        variables = [Variable(**v) for v in live["variables"]]
        return [self._liveness(k, s, variables) for k, s in enumerate(live["steps"])]

    def _liveness(self, k: int, step: dict[str, Any], variables: list[Variable]) -> ProgramStep:
        alive = [v for v in variables if v.firstStep <= k <= v.lastStep]
        program: int = step["program"]
        return ProgramStep(
            self.programs[program], SimpleNamespace(bytes=step["bytes"]), tuple(alive), self.target.tilesPerIpu
        )

    @cached_property
    def programs(self) -> list[Program]:
        """All programs; those that others call stand here too."""
        return read(self._graph["programs"], self.computeSets, self.exchanges, self.target.numTiles)

    @property
    def controlProgram(self) -> Program:
        """The program that a run starts with."""
        first: int = self._graph["controlProgram"][0]
        return self.programs[first]

    @cached_property
    def computeSets(self) -> list[ComputeSet]:
        """All compute sets with the vertices that they run."""
        return compute_sets(self._graph)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """All exchanges with the bytes that they move."""
        return exchanges(self._graph)

    @cached_property
    def vertexTypes(self) -> list[VertexType]:
        """Kinds of vertices with their memory on all tiles."""
        return vertex_types(self._graph)


def _sum(memories: list[SimpleNamespace]) -> SimpleNamespace:
    """Memory of several tiles together, by the same names."""
    total = SimpleNamespace(
        includingGaps=sum(m.total.includingGaps for m in memories),
        excludingGaps=sum(m.total.excludingGaps for m in memories),
    )
    names = cast("dict[str, Any]", vars(memories[0].category))
    category = SimpleNamespace(
        **{name: SimpleNamespace(total=sum(getattr(m.category, name).total for m in memories)) for name in names}
    )
    return SimpleNamespace(
        total=total,
        category=category,
        alwaysLiveBytes=sum(m.alwaysLiveBytes for m in memories),
        maxNotAlwaysLiveBytes=sum(m.maxNotAlwaysLiveBytes for m in memories),
    )
