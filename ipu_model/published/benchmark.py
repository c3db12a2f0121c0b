"""The three figures that a row of the PopLibs benchmark table may ask for, in the unit it asks for."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from ipu_model.published.formula import Formula

CYCLES = {"cycles": 1.0, "cycle": 1.0, "kilocycles": 1e3, "kcycles": 1e3, "megacycles": 1e6, "mcycles": 1e6}
SECONDS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "minutes": 60.0}
BYTES = {"bytes": 1.0, "byte": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20,
         "gib": 2.0**30}  # fmt: skip


@dataclass(frozen=True)
class Operands:
    """Bytes of the tensors of a layer, over the whole chip."""

    inputs: int
    weights: int
    outputs: int


@dataclass(frozen=True)
class Benchmark:
    """One benchmark program, priced.

    Attributes
    ----------
    cycles : Formula
        Cycles of its timed programs.
    total_memory : Formula, optional
        Sum over tiles of always-live bytes plus each tile's own peak of the rest, bytes; None where the program is a
        part of another, whose memory it has.
    max_tile : Formula, optional
        Highest address used on any tile, gaps included, bytes.
    """

    cycles: Formula
    total_memory: Formula | None = None
    max_tile: Formula | None = None

    def figure(self, what: str, unit: str) -> Formula:
        """The formula for a figure named as in the table.

        Raises
        ------
        ValueError
            When `what` names none of the three, the unit is of another kind, or the program has no memory of its own.
        """
        what, unit = what.lower(), unit.strip().lower()
        for pattern, formula in ((r"total memory", self.total_memory), (r"max(imum)? tile|fullest", self.max_tile)):
            if re.search(pattern, what):
                if formula is None:
                    raise ValueError(f"{what!r}: memory is that of the whole program, not of a part of it")
                return dataclasses.replace(formula, unit=_scale(what, unit, BYTES))
        if not re.search(r"\b(cycles?|time|latency|duration)\b", what):
            raise ValueError(f"a benchmark row has cycles, total memory and max tile memory, not {what!r}")
        if unit in SECONDS:
            return dataclasses.replace(self.cycles, seconds=True, unit=SECONDS[unit])
        return dataclasses.replace(self.cycles, unit=_scale(what, unit, CYCLES))


def _scale(what: str, unit: str, scales: dict[str, float]) -> float:
    if unit not in scales:
        raise ValueError(f"{what!r} is asked for in {unit!r}, expected one of {', '.join(scales)}")
    return scales[unit]
