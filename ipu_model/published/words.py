"""What the words of a benchmark row ask for: passes of a layer, or the largest size that fits."""

# pyright: strict
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ipu_model.published.benchmark import Benchmark
from ipu_model.target import Target

PASS_WORDS = (r"\b(fwd|forward)\b", r"\b(bwd|backward)\b", r"\b(wu|weight update|weight-update)\b")
LARGEST = re.compile(r"\b(?:largest|biggest|greatest|maximum|max)\s+([a-z][a-z -]*?)\s+(?:that|which|to)\s+fits?\b")
MOST = 1 << 24  # sizes are not looked for beyond this


def passes_of(words: str) -> tuple[int, ...]:
    """Passes that words name, 0 forward, 1 backward, 2 weight update; all of them where they name none."""
    found = tuple(i for i, pattern in enumerate(PASS_WORDS) if re.search(pattern, words.lower()))
    return found or (0, 1, 2)


def size_asked_for(what: str) -> str | None:
    """The parameter whose largest value is asked for (``"largest batch size that fits"``), as flags are written."""
    found = LARGEST.search(what.lower())
    return "-".join(found[1].split()) if found else None


def largest_that_fits(
    name: str, params: Mapping[str, Any], data: str, target: Target, op: Callable[..., Benchmark]
) -> int:
    """The largest value of a parameter with which the fullest tile still fits, by halving between two sizes.

    Raises
    ------
    ValueError
        When the operation has no such size, or not even the smallest fits.
    """
    sizes = {key for key, value in params.items() if isinstance(value, int) and not isinstance(value, bool)}
    if name not in sizes | {"batch-size"}:
        raise ValueError(f"a limit of {name!r} is asked for; sizes of the row are {sorted(sizes)}")

    def fits(value: int) -> bool:
        benchmark = op({**params, name: value}, data, target)
        return float(benchmark.max_tile(target)) <= target.machine.tile_memory

    if not fits(1):
        raise ValueError(f"not even {name} 1 fits a tile of {target.machine.tile_memory:,} bytes")
    low, high = 1, 2
    while high < MOST and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 256):  # a plan more or less does not matter
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
