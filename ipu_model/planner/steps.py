"""Fixed costs of every program beside its vertices: one launch, and a start-up for each exchange.

Two constants serve all families that are priced by their own steps. They were read off the ten reductions of the
benchmark table: their cycles, less vertices and exchanged bytes, are 866 with one exchange and 1,004 with two, or about
1,098 on the 1472 tiles of the second chip.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ipu_model.target import Machine

LAUNCH = 728.0  # cycles of starting a program
EXCHANGE = 138.0  # start-up of an exchange, devices of up to 1216 tiles
EXCHANGE_LARGE = 185.0  # the same on 1472 tiles
FEW_TILES = 1216
ROTATED_COPY = 330.0  # bringing columns into order on a tile; 207 to 393 in the table, with no visible rule
LOOP_TURN, LOOP_TURN_LARGE = 225.0, 235.0  # an iteration of a repeat loop: one small exchange and one compute set


def exchange_start(machine: Machine) -> float:
    """Start-up cycles of an exchange, beside those of its bytes."""
    return EXCHANGE if machine.tiles <= FEW_TILES else EXCHANGE_LARGE


def loop_turn(machine: Machine) -> float:
    """Cycles of one iteration of a loop, beside those of its vertex."""
    return LOOP_TURN if machine.tiles <= FEW_TILES else LOOP_TURN_LARGE


def queued(bundles: Iterable[float], workers: int = 6) -> float:
    """Tile cycles of worker vertices, each taken in turn by the context that is free first."""
    free = [0.0] * workers
    for each in bundles:
        heapq.heapreplace(free, free[0] + each)
    return workers * max(free)


def short_pointers(machine: Machine) -> bool:
    """Whether vertices hold pointers of 2 bytes: scaled by the word of 4 bytes they reach 256 KiB."""
    return machine.tile_memory <= 1 << 18
