"""Interconnect of chips: levels of links from the nearest to the farthest, and the time of collectives over them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ipu_model.checks import check_finite, check_sizes
from ipu_model.targets import FOLDER


@dataclass(frozen=True)
class Level:
    """Links that join `chips` chips, counted from the first level on."""

    name: str
    chips: int
    bytes_per_second: float  # of one chip in one direction, while all chips send
    latency: float = 0.0  # seconds of one hop

    def __post_init__(self) -> None:
        what = f"Level {self.name!r}"
        check_sizes(what, chips=self.chips)
        check_finite(what, 0, bytes_per_second=self.bytes_per_second)
        check_finite(what, latency=self.latency)


@dataclass(frozen=True)
class Interconnect:
    """Levels of links. A group's members are `stride` chips apart.

    Examples
    --------
    >>> links = Interconnect((Level("near", 4, 8e9), Level("far", 16, 1e9)))
    >>> links.all_reduce(8e9, 4)  # 2 * 3/4 * 8 GB at 8 GB/s
    1.5
    >>> links.all_reduce(8e9, 16)  # and 2 * 3/4 of the quarter that each chip then holds, at 1 GB/s
    4.5
    """

    levels: tuple[Level, ...]

    @property
    def chips(self) -> int:
        """How many chips can be joined."""
        return self.levels[-1].chips

    def all_reduce(self, size: float, members: int, stride: int = 1) -> float:
        """Seconds to add up `size` bytes of each member, the sum on all of them.

        A ring at each level: with n members ``2 (n - 1) / n`` of the bytes cross each link in ``2 (n - 1)`` hops, and
        the next level works on the n-th part that each member holds then.
        """
        seconds = 0.0
        for count, level in self._counts(members, stride):
            seconds += 2 * (count - 1) * (size / count / level.bytes_per_second + level.latency)
            size /= count
        return seconds

    def send(self, size: float, stride: int) -> float:
        """Seconds for every chip to send `size` bytes to the one `stride` chips on, over the farthest link needed.

        Raises ValueError where no level joins them.
        """
        level = self._level_of(2 * stride)
        return size / level.bytes_per_second + level.latency

    def _counts(self, members: int, stride: int) -> Iterator[tuple[int, Level]]:
        """How many parts a group falls into at each level."""
        for level in self.levels:
            fits = max(1, level.chips // stride)
            count = max(n for n in range(1, min(fits, members) + 1) if members % n == 0)
            if count > 1:
                yield count, level
            members, stride = members // count, stride * count
        if members > 1:
            raise ValueError(f"{members * stride} chips, but the links join {self.chips}")

    def _level_of(self, chips: int) -> Level:
        for level in self.levels:
            if chips <= level.chips:
                return level
        raise ValueError(f"{chips} chips, but the links join {self.chips}")


def interconnect_of(target: Any) -> Interconnect:
    """The links of a target's systems, by the data file `targets/systems.json`.

    A target of another name than those of the file takes what its architecture has: a chip's own link rate in a machine
    of four.
    """
    document = json.loads((FOLDER / "systems.json").read_text())
    chip = target if hasattr(target, "link_rate") else None
    rows = document.get(getattr(target, "name", "")) or document["roofline" if chip is None else "mk2"]
    latency = 0.0 if chip is None else chip.external_sync_cycles / chip.clock_hz
    rate = math.inf if chip is None else chip.link_rate
    return Interconnect(
        tuple(Level(r["name"], r["chips"], r["share"] or rate, r.get("latency", latency)) for r in rows)
    )
