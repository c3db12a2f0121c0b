"""What a document read from a file must say so that its renderings make sense: its target, its tiles, its places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_model.checks import check_finite, check_sizes

TARGET = "the report.target"
NAMES = ("name", "type", "architecture")
COUNTS = ("tilesPerIPU", "numIPUs", "ipusPerReplica", "numReplicas", "numTiles", "bytesPerTile", "bytesPerIPU",
          "totalMemory")  # fmt: skip
FROM_ZERO = ("interleavedStart", "minSyncDelay")
RATES = ("clockFrequency", "peakFlops")
SIGNED = frozenset(("parent", "peak_step", "first", "last"))  # places, where -1 says that there is none
ROUNDING = -1e-3  # cycles


def check_sign(where: str, value: object) -> None:
    """Check that a number, where it is one, counts something; ValueError with its place, where it is negative."""
    if isinstance(value, int | float) and value < (ROUNDING if isinstance(value, float) else 0):
        raise ValueError(f"{where} is {value!r}, expected a number of at least 0")


def check(report: Any) -> None:
    """Check a `report.model.Document`, which calls this, so that its type is not imported here.

    Raises ValueError with the place of the first value that can't be.
    """
    _check_target(report.target)
    memory, ipus = report.memory, report.target["ipusPerReplica"]
    tiles = report.target["tilesPerIPU"] * ipus
    check_sizes("the report.memory", bytes_per_tile=memory.bytes_per_tile, tiles_per_ipu=memory.tiles_per_ipu)
    lists = {f"categories[{name!r}]": row for name, row in memory.categories.items()}
    for name in ("always_by_tile", "not_always_by_tile", "total_by_tile", "including_gaps_by_tile"):
        lists[name] = getattr(memory, name)
    for name, row in lists.items():
        if len(row) != tiles:
            raise ValueError(f"the report.memory.{name} has {len(row)} tiles, the target has {tiles}")
        if min(row) < 0:
            raise ValueError(f"the report.memory.{name} has a negative number of bytes: {min(row)}")
    _check_place("memory.peak_tile", memory.peak_tile, tiles)
    if report.steps:
        _check_place("memory.peak_step", memory.peak_step, len(report.steps))
    for at, step in enumerate(report.steps):
        _check_place(f"steps[{at}].ipu", step.ipu, ipus)
        _check_place(f"steps[{at}].frame", step.frame, len(report.frames))
    for at, frame in enumerate(report.frames):
        if not frame.parent < at or not 0 <= frame.begin <= frame.end <= len(report.steps):
            raise ValueError(
                f"the report.frames[{at}] holds steps {frame.begin} to {frame.end} inside frame {frame.parent}; "
                f"there are {len(report.steps)} steps, and a frame stands behind the one around it"
            )


def _check_target(target: Mapping[str, Any]) -> None:
    missing = sorted({*NAMES, *COUNTS, *FROM_ZERO, *RATES} - target.keys())
    if missing:
        raise ValueError(f"{TARGET} lacks {missing}")
    for name in NAMES:
        if not isinstance(target[name], str):
            raise ValueError(f"{TARGET}: {name} is {target[name]!r}, expected a text")
    check_sizes(TARGET, **{name: target[name] for name in COUNTS})
    check_sizes(TARGET, 0, **{name: target[name] for name in FROM_ZERO})
    check_finite(TARGET, 0.0, **{name: target[name] for name in RATES})
    ipus = target["ipusPerReplica"] * target["numReplicas"]
    if target["numIPUs"] != ipus or target["numTiles"] != ipus * target["tilesPerIPU"]:
        raise ValueError(
            f"{TARGET} has {target['numIPUs']} IPUs and {target['numTiles']} tiles, expected {ipus} and "
            f"{ipus * target['tilesPerIPU']}: {target['numReplicas']} replicas of {target['ipusPerReplica']} IPUs"
        )


def _check_place(name: str, place: int, count: int) -> None:
    if not 0 <= place < count:
        raise ValueError(f"the report.{name} is {place}, expected 0 to {count - 1}")
