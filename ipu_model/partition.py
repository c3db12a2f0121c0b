"""Tile mappings: the linear mapping that a tensor gets by default."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ipu_model.planner.mapping import LINEAR_MINIMUM
from ipu_model.planner.mapping import split_regions as _split


@dataclass(frozen=True, slots=True)
class Spread:
    """`tiles` tiles from `first` on hold a tensor of `size` elements, the fullest of them `most` elements."""

    tiles: int
    most: int
    size: int
    first: int = 0

    @property
    def end(self) -> int:
        """The tile after the last one in use."""
        return self.first + self.tiles

    @property
    def balance(self) -> float:
        """Mean over the used tiles divided by the fullest one."""
        return self.size / (self.tiles * self.most) if self.size else 1.0


@functools.lru_cache(maxsize=100_000)
def split_regions(elements: int, grain: int, parts: int, minimum: int = 0, maximum: int = 0) -> Spread:
    """`elements` in units of `grain` over at most `parts`; sizes differ by one grain at most."""
    used, most = _split(elements, grain, max(1, parts), minimum, maximum)
    return Spread(max(1, used), min(elements, most), elements)


def linear(elements: int, width: int, tiles: int, vector_bytes: int = 8) -> Spread:
    """Default mapping of a tensor: flattened order, whole vectors, at least 128 bytes on each tile used."""
    grain = max(1, vector_bytes // width)
    return split_regions(elements, grain, tiles, -(-LINEAR_MINIMUM // width))
