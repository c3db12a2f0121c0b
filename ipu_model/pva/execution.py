"""``report.execution``: runs, steps and cycles of the modelled execution."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipu_model.pva.compilation import Compilation


class Execution:
    """The run-time half of a profile: one run of the program."""

    def __init__(self, execution: dict[str, Any], compilation: Compilation) -> None:
        self._simulation = execution["simulation"]
        self._compilation = compilation
        self.profilerMode = execution["profilerMode"]

    @property
    def totalCycles(self) -> int:
        return round(self._simulation["cycles"])

    @cached_property
    def steps(self) -> list[SimpleNamespace]:
        return [self._step(s) for s in self._simulation["steps"]]

    @cached_property
    def runs(self) -> list[SimpleNamespace]:
        end = self._simulation["cycles"] / self._compilation.target.clockFrequency * 1e6
        return [SimpleNamespace(name="run", microseconds=SimpleNamespace(start=0.0, end=end), steps=self.steps)]

    def _step(self, s: dict[str, Any]) -> SimpleNamespace:
        ipus = []
        for k in range(len(self._compilation.ipus)):
            mine = k == s["ipu"]
            ipus.append(
                SimpleNamespace(
                    cycles=s["cycles"] if mine else 0.0,
                    activeCycles=s.get("activeCycles", 0.0) if mine else 0.0,
                    cyclesFrom=SimpleNamespace(min=s["cyclesFrom"], max=s["cyclesFrom"]),
                    cyclesTo=SimpleNamespace(min=s["cyclesTo"], max=s["cyclesTo"]),
                    tileBalance=s.get("tileBalance", 0.0) if mine else 0.0,
                    activeTileBalance=s.get("activeTileBalance", 0.0) if mine else 0.0,
                    activeTiles=s.get("activeTiles", 0) if mine else 0,
                    vertices=s.get("vertices", 0) if mine else 0,
                )
            )
        return SimpleNamespace(program=self._compilation.programs[s["program"]], ipus=ipus)
