"""How data are spread over tiles and workers: the region splitting rule and the linear tile mapping built on it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ipu_model.cost import cdiv

MIN_BYTES_PER_TILE = 128


@dataclass(frozen=True, slots=True)
class Spread:
    """Tiles 0 to `tiles` - 1 hold a tensor of `size` elements, the fullest of them `most` elements."""

    tiles: int
    most: int
    size: int

    @property
    def balance(self) -> float:
        """Mean over the used tiles divided by the fullest one."""
        return self.size / (self.tiles * self.most) if self.size else 1.0


@functools.lru_cache(maxsize=100_000)
def split_regions(elements: int, grain: int, parts: int, minimum: int = 0, maximum: int = 0) -> Spread:
    """Divide `elements` in units of `grain` over at most `parts`; sizes differ by one grain at most.

    Parameters
    ----------
    minimum, maximum : int
        Smallest and largest part, in elements; 0 for none. The maximum may lead to more than `parts` parts.
    """
    if elements <= 0:
        return Spread(1, 0, 0)
    grains = cdiv(elements, grain)
    per_part = cdiv(grains, max(1, parts))
    if maximum:
        per_part = max(1, min(per_part, maximum // grain))
    if minimum:
        per_part = max(per_part, cdiv(grains, max(1, grains // cdiv(minimum, grain))))
    used = cdiv(grains, per_part)
    return Spread(used, min(elements, cdiv(grains, used) * grain), elements)


def linear(elements: int, width: int, tiles: int, vector_bytes: int = 8) -> Spread:
    """Default mapping of a tensor: flattened order, whole vectors, at least 128 bytes on each tile used.

    Parameters
    ----------
    width : int
        Bytes per element.
    """
    grain = max(1, vector_bytes // width)
    return split_regions(elements, grain, tiles, cdiv(MIN_BYTES_PER_TILE, width))
