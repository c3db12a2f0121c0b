"""``report.execution``: runs, steps and cycles of the modelled execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ipu_model.pva.programs import ProgramType

if TYPE_CHECKING:
    from ipu_model.pva.compilation import Compilation


class ExecutionStep(SimpleNamespace):
    """A step of a run: ``program``, ``ipus``, ``runs``, ``cycles``."""


class Execution:
    """The run-time half of a profile: the steps of one run, and the runs by name."""

    def __init__(self, execution: dict[str, Any], compilation: Compilation, runs: Sequence[str]) -> None:
        self._simulation = execution["simulation"]
        self._compilation = compilation
        self._runs = tuple(runs)
        self.profilerMode: str = execution["profilerMode"]

    @property
    def totalCycles(self) -> int:
        """Cycles of one run."""
        return round(self._simulation["cycles"])

    @cached_property
    def tileCycles(self) -> SimpleNamespace:
        """Cycles by kind, summed over the tiles."""
        return SimpleNamespace(**self._simulation["tileCycles"])

    @cached_property
    def steps(self) -> list[ExecutionStep]:
        """Steps of the run in order, each with cycles."""
        return [self._step(s) for s in self._simulation["steps"]]

    @cached_property
    def runs(self) -> list[SimpleNamespace]:
        """Runs in turn; each takes the modelled time."""
        length = self._simulation["cycles"] / self._compilation.target.clockFrequency * 1e6
        return [
            SimpleNamespace(
                name=name, microseconds=SimpleNamespace(start=k * length, end=(k + 1) * length), steps=self.steps
            )
            for k, name in enumerate(self._runs)
        ]

    def _step(self, s: dict[str, Any]) -> ExecutionStep:
        number: int = s["program"]
        program = self._compilation.programs[number]
        if program.type is ProgramType.StreamCopy:  # of its begin, middle and end, the middle alone takes time
            program = replace(program, type=ProgramType.StreamCopyMid)
        target = self._compilation.target
        own, others = _ipu(s, program.vertices), _ipu(IDLE | {k: s[k] for k in ("cyclesFrom", "cyclesTo")}, 0)
        ipus = [own if k % target.ipusPerReplica == s["ipu"] else others for k in range(target.numIPUs)]
        return ExecutionStep(program=program, ipus=ipus, runs=s["runs"], cycles=s["cycles"])


IDLE: dict[str, Any] = {"cycles": 0.0}


def _ipu(s: dict[str, Any], vertices: int) -> SimpleNamespace:
    """What one IPU does in a step: whole of its runs, all tiles starting together."""
    return SimpleNamespace(
        cycles=s["cycles"],
        activeCycles=s.get("activeCycles", 0.0),
        cyclesFrom=SimpleNamespace(min=s["cyclesFrom"], max=s["cyclesFrom"]),
        cyclesTo=SimpleNamespace(min=s["cyclesTo"], max=s["cyclesTo"]),
        tileBalance=s.get("tileBalance", 0.0),
        activeTileBalance=s.get("activeTileBalance", 0.0),
        activeTiles=s.get("activeTiles", 0),
        totalData=s.get("totalData", 0.0),
        vertices=vertices,
    )
