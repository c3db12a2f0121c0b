"""The three figures of the PopLibs benchmark table (cycles, total memory, highest address), in a row's unit."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from ipu_model.published.formula import Formula
from ipu_model.published.units import parse

MOST = r"\b(max(imum)?|peak|highest|largest|most|worst)\b"
MAX_TILE = rf"fullest|{MOST}.*\b(tile|address)\b|\btile\b.*{MOST}"
MEAN_TILE = r"\b(mean|average|avg)\b.*\btile\b|\bper tile\b.*\b(mean|average|avg)\b"
TOTAL = (
    r"total (tile )?memory|memory.*\b(all|over|sum|total|altogether)\b|\b(all|whole|sum of)\b.*memory"
    r"|^(the )?memory( used?| usage| footprint)?( (of|in|for) (the|a) [a-z -]+)?$"
)
OTHERS = r"memory|bytes|watts?|power|energy|joules?|temperature"  # quantities that cycles do not tell
# Parts of a program that the words of a row may name, and that are not known apart.
UNKNOWN_PARTS = r"\b(stage|recursion|path|phase|sync|control|copy|copies|rearrangements?|transposes?)\b"
VERTICES = ("compute", "reduce", "cast", "scaled_add")  # terms of a convolution that are work of vertices


@dataclass(frozen=True)
class Operands:
    """Bytes of the tensors of a layer, over the whole chip."""

    inputs: int
    weights: int
    outputs: int


@dataclass(frozen=True)
class Benchmark:
    """One benchmark program, priced."""

    cycles: Formula  # cycles of its timed programs
    # sum over tiles of always-live bytes plus each tile's own peak of the rest, bytes; None for a program that is part
    # of another and shares its memory
    total_memory: Formula | None = None
    max_tile: Formula | None = None  # highest address used on any tile, gaps included, bytes

    def on_tiles(self, tiles: int) -> Benchmark:
        """The same with a highest address no lower than the mean over `tiles`, which no fullest tile is below."""
        if self.total_memory is None or self.max_tile is None:
            return self
        mean = self.total_memory.shared(tiles)
        highest = dataclasses.replace(self.max_tile, alternatives=(*self.max_tile.alternatives, *mean.alternatives))
        return dataclasses.replace(self, max_tile=highest)

    def figure(self, what: str, unit: str, tiles: int = 1) -> Formula:
        """The formula for a figure named as in the table, before its unit is taken into account.

        The memory of the mean of `tiles` is a share of that of all. Raises ValueError where `what` names none of the
        three, a part that is not known apart, or memory that the program shares.
        """
        words = what.lower()
        mean = self.total_memory and self.total_memory.shared(tiles)
        for pattern, formula in ((MEAN_TILE, mean), (TOTAL, self.total_memory), (MAX_TILE, self.max_tile)):
            if re.search(pattern, words):
                if formula is None:
                    raise ValueError(f"{what!r}: memory is that of the whole program, not of a part of it")
                return dataclasses.replace(formula, gives="bytes")
        sort, timed = parse(unit).sort, re.search(r"\b(cycles?|time|latency|duration)\b", words)
        if re.search(OTHERS, words) or not (timed or sort in ("cycles", "time", "share") or sort.endswith("/s")):
            raise ValueError(f"a benchmark row has cycles, total memory and max tile memory, not {what!r}")
        part = re.search(UNKNOWN_PARTS, words)
        if part:
            raise ValueError(f"{what!r}: a {part[0]} of this program is not known apart")
        return (
            self._part(words) if re.search(r"\b(exchange|compute|vertex|reductions?|reduce)\b", words) else self.cycles
        )

    def _part(self, words: str) -> Formula:
        """Cycles of the exchanges, of the vertices or of the reduction of partial results of products."""
        names = ("reduce", "reduce_stages") if "reduc" in words else VERTICES
        if "reduc" in words and not any(name.startswith("conv.") for name in self.cycles.constants()):
            return self.cycles  # of a program that is a reduction
        wanted = self.cycles.exchange if "exchange" in words else {f"conv.{name}" for name in names}
        kept = {name: value for name, value in self.cycles.alternatives[0].items() if name in wanted}
        if not any(name.startswith("conv.") for name in kept):
            raise ValueError(f"{words!r}: the exchange and the vertices of this program are not known apart")
        return dataclasses.replace(self.cycles, alternatives=(kept,), work={}, plans=())
