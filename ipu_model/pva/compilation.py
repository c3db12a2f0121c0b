"""``report.compilation``: target, graph, tiles, IPUs, always-live variables, liveness, programs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from ipu_model.pva.programs import Program, read

ARCHITECTURES = {"ipu1": "Ipu1", "ipu2": "Ipu2", "ipu21": "Ipu21"}


@dataclass(frozen=True)
class Variable:
    name: str
    size: int


@dataclass(frozen=True)
class ProgramStep:
    """A step of the liveness report."""

    program: SimpleNamespace
    notAlwaysLiveMemory: SimpleNamespace
    notAlwaysLiveVariables: tuple[Variable, ...] = ()


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

    @cached_property
    def livenessProgramSteps(self) -> list[ProgramStep]:
        steps = self._memory["liveness"]["notAlwaysLive"]["steps"]
        return [ProgramStep(SimpleNamespace(name=s["name"]), SimpleNamespace(bytes=s["bytes"])) for s in steps]

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
