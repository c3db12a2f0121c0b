"""The three figures that a row of the PopLibs benchmark table may ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipu_model.published.formula import Formula


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
    total_memory : Formula
        Sum over tiles of always-live bytes plus each tile's own peak of the rest, bytes.
    max_tile : Formula
        Highest address used on any tile, gaps included, bytes.
    """

    cycles: Formula
    total_memory: Formula
    max_tile: Formula

    def figure(self, what: str) -> Formula:
        """The formula for a figure named as in the table.

        Raises
        ------
        ValueError
            When `what` names none of the three.
        """
        if what.startswith("total cycles") or re.search(r"^cycles\b|\bpass\b.*\bcycles\b|\bcycles$", what):
            return self.cycles
        if what.startswith("total memory"):
            return self.total_memory
        if what.startswith("max tile memory"):
            return self.max_tile
        raise ValueError(f"a benchmark row has cycles, total memory and max tile memory, not {what!r}")
