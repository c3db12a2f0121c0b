"""Interleaved timing: every engine takes its turn in each round, in random order; medians and ratios come out."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_SETTLE = 0.05
"""Pause before each measurement [s]: threads of the engine before spin for a while, ONNX Runtime's for 20 to 30 ms.

Within that time a network of 7.4 ms takes 11.8 (two cores, AMD EPYC), whoever runs it.
"""

_LONG = 0.1
"""Calls that take longer [s] need no other call before them to warm the caches."""


@dataclass(frozen=True)
class Timing:
    """Times of one engine [s], one entry a round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median time [s]."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Interquartile range over the median: above 0.3 the machine was too noisy to tell small differences."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / self.median


def interleave(
    engines: Mapping[str, Callable[[], object]], *, budget: float = 4.0, least: int = 5
) -> dict[str, Timing]:
    """Time each engine in turn, round after round.

    Parameters
    ----------
    engines : mapping of str to callable
        Each call must block until its result is there.
    budget : float
        Time to spend on all engines together [s]; at least `least` rounds are made.
    least : int
        Least number of rounds.
    """
    inner = {name: _repeats(call) for name, call in engines.items()}
    times: dict[str, list[float]] = {name: [] for name in engines}
    rng = random.Random(0)
    started = time.perf_counter()
    while len(next(iter(times.values()))) < least or time.perf_counter() - started < budget:
        for name in rng.sample(list(engines), len(engines)):
            time.sleep(_SETTLE)
            if not times[name] or times[name][-1] < _LONG:
                engines[name]()
            times[name].append(_time(engines[name], inner[name]))
    return {name: Timing(tuple(values)) for name, values in times.items()}


def installed_environment(bytecode: Path) -> dict[str, str]:
    """Environment of a measured process: our own, with byte code of Python in a folder, as installed packages have it.

    Where Python may not write byte code, each process would compile all our modules.
    """
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}


def ratio(a: Timing, b: Timing) -> float:
    """Median over rounds of a's time over b's in the same round."""
    return statistics.median(x / y for x, y in zip(a.seconds, b.seconds, strict=True))


def _repeats(call: Callable[[], object]) -> int:
    """Calls per measurement, so that one takes at least 2 ms; also warms up."""
    call()
    call()
    return max(1, round(2e-3 / max(_time(call, 1), 1e-7)))


def _time(call: Callable[[], object], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count
