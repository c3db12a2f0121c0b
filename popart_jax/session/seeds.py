"""The random seed of a session: 64 bits, kept on the device as two words with the low one first."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from .._calls import checked
from ..errors import logs_errors_of_methods, popart_runtime_error
from ..logs import module_logger
from .engine import Engine
from .preparing import Prepared

_LARGEST = 2**64 - 1


def clock_seed() -> int:
    """A seed from the clock."""
    return time.time_ns() & _LARGEST


def to_words(seed: int) -> np.ndarray:
    """The two words of a seed."""
    return np.asarray([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], np.uint32)


def to_int(words: np.ndarray) -> int:
    """The seed of two words."""
    return int(words[0]) | int(words[1]) << 32


@logs_errors_of_methods
class SeedMethods:
    """Setting and reading the random seed of a session."""

    _prepared: Prepared
    _engine: Engine | None
    _loaded: bool
    _seed: int
    _ready: Callable[[str], Engine]

    @checked
    def setRandomSeed(self, seedValue: int) -> None:
        """Set the random seed.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        TypeError
            No number of 64 bits without sign.
        """
        if not 0 <= seedValue <= _LARGEST:
            raise TypeError(f"setRandomSeed takes a seed from 0 to {_LARGEST}, got {seedValue}")
        if not self._prepared.program.random:
            module_logger("session").warning(
                "Trying to set the random seed, but this session has no random behaviour. Doing nothing."
            )
            return
        if self._engine is None:
            raise popart_runtime_error("Must call prepareDevice before setRandomSeed")
        self._seed = seedValue
        if self._loaded:
            self._engine.put_seed(to_words(seedValue))

    def getRandomSeed(self) -> int:
        """The current random seed, on replica 0.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        """
        if not self._prepared.program.random:
            module_logger("session").warning(
                "Trying to get the random seed, but this session has no random behaviour. Returning 0."
            )
            return 0
        return to_int(self._ready("getRandomSeed").seed())
