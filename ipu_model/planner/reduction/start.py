"""The first tile of intermediate results: a hash of the reduction, by which the library spreads its work."""

from __future__ import annotations

from collections.abc import Sequence

MULTIPLIER = 0xC6A4A7935BD1E995
SEED = 0x9E3779B9
ADDED = 0xE6546B64
MASK = (1 << 64) - 1
CODES = {"ADD": 0, "MUL": 1, "MIN": 2, "MAX": 3, "AND": 4, "OR": 5, "SQUARE_ADD": 6, "LOG_ADD": 7}


def _combine(state: int, value: int) -> int:
    value = value * MULTIPLIER & MASK
    value ^= value >> 47
    value = value * MULTIPLIER & MASK
    return ((state ^ value) * MULTIPLIER + ADDED) & MASK


def start_tile(
    rows: int, columns: int, shape: Sequence[int], operation: str, tiles: int, update: bool = False, scale: bool = False
) -> int:
    """First tile of the intermediate results of a reduction to `shape`."""
    state = SEED
    for value in (rows, columns, *shape, CODES[operation], int(update), int(scale)):
        state = _combine(state, value)
    return state % tiles
