"""``report.compilation``: target, graph, tiles, IPUs, always-live variables, liveness, programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from ipu_model.pva.programs import Program, read

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

    def on_tile(self, tile: int, tiles_per_ipu: int) -> bool:
        return tile // tiles_per_ipu == self.ipu and tile % tiles_per_ipu < self.tiles


@dataclass(frozen=True)
class ProgramStep:
    """A step of the liveness report."""

    program: SimpleNamespace
    notAlwaysLiveMemory: SimpleNamespace
    notAlwaysLiveVariables: tuple[Variable, ...]
    tilesPerIpu: int

    def notAlwaysLiveMemoryForTile(self, tile: int) -> SimpleNamespace:
        """Bytes of the listed variables that lie on a tile."""
        here = [v for v in self.notAlwaysLiveVariables if v.on_tile(tile, self.tilesPerIpu)]
        return SimpleNamespace(bytes=sum(v.bytesOnFullestTile for v in here))


class Compilation:
    """The compile-time half of a profile."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self._graph = graph
        self._memory = graph["memory"]

    @cached_property
    def target(self) -> SimpleNamespace:
        t = self._graph["target"]
        return SimpleNamespace(
            numTiles=t["numTiles"], tilesPerIpu=t["tilesPerIPU"], numIPUs=t["numIPUs"], numReplicas=t["numReplicas"],
            totalMemory=t["totalMemory"], bytesPerIPU=t["bytesPerIPU"], bytesPerTile=t["bytesPerTile"],
            clockFrequency=t["clockFrequency"], type=t["type"],
            architecture=ARCHITECTURES.get(t["architecture"], t["architecture"]),
        )  # fmt: skip

    @property
    def graph(self) -> SimpleNamespace:
        return SimpleNamespace(**self._graph["graph"])

    @cached_property
    def tiles(self) -> list[SimpleNamespace]:
        return [self._tile(k) for k in range(len(self._memory["byTile"]["total"]))]

    @cached_property
    def ipus(self) -> list[SimpleNamespace]:
        per = self.target.tilesPerIpu
        found = []
        for start in range(0, len(self.tiles), per):
            tiles = self.tiles[start : start + per]
            total = SimpleNamespace(
                includingGaps=sum(t.memory.total.includingGaps for t in tiles),
                excludingGaps=sum(t.memory.total.excludingGaps for t in tiles),
            )
            found.append(SimpleNamespace(tiles=tiles, memory=SimpleNamespace(total=total)))
        return found

    def _tile(self, k: int) -> SimpleNamespace:
        m = self._memory
        category = SimpleNamespace()
        for name, regions in m["byCategory"].items():
            total = sum(part["nonOverlapped"][k] + part["overlapped"][k] for part in regions.values())
            setattr(category, name, SimpleNamespace(total=total))
        return SimpleNamespace(
            memory=SimpleNamespace(
                total=SimpleNamespace(
                    includingGaps=m["byTile"]["totalIncludingGaps"][k], excludingGaps=m["byTile"]["total"][k]
                ),
                category=category,
                alwaysLiveBytes=m["liveness"]["alwaysLive"]["bytesByTile"][k],
                maxNotAlwaysLiveBytes=m["liveness"]["notAlwaysLive"]["maxBytesByTile"][k],
            )
        )

    @cached_property
    def alwaysLiveVariables(self) -> list[Variable]:
        return [Variable(**v) for v in self._memory["liveness"]["alwaysLive"]["variables"]]

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """Always-live variables with a part on a tile; their size is the part's."""
        per = self.target.tilesPerIpu
        here = (v for v in self.alwaysLiveVariables if v.on_tile(tile, per))
        return [replace(v, size=v.bytesOnFullestTile) for v in here]

    @cached_property
    def livenessProgramSteps(self) -> list[ProgramStep]:
        live = self._memory["liveness"]["notAlwaysLive"]
        variables = [Variable(**v) for v in live["variables"]]
        return [self._liveness(k, s, variables) for k, s in enumerate(live["steps"])]

    def _liveness(self, k: int, step: dict[str, Any], variables: list[Variable]) -> ProgramStep:
        alive = tuple(v for v in variables if v.firstStep <= k <= v.lastStep)
        program, memory = SimpleNamespace(name=step["name"]), SimpleNamespace(bytes=step["bytes"])
        return ProgramStep(program, memory, alive, self.target.tilesPerIpu)

    @cached_property
    def programs(self) -> list[Program]:
        return read(self._graph["programs"], self._graph["computeSets"]["vertexCounts"])

    @property
    def computeSets(self) -> list[SimpleNamespace]:
        sets = self._graph["computeSets"]
        return [
            SimpleNamespace(name=n, numVertices=sum(c))
            for n, c in zip(sets["names"], sets["vertexCounts"], strict=True)
        ]
