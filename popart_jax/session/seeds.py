"""Random state of a session: the seed, 64 bits that the device keeps as two words, and the generators' state."""

from __future__ import annotations

import time

import numpy as np

from .._calls import refused
from ..enums import SyntheticDataMode
from ..errors import popart_runtime_error
from ..logs import module_logger
from .devices.device_engine import not_prepared
from .engine import Engine
from .preparing import Prepared

_LARGEST = 2**64 - 1
RNG_WORDS = 2


def to_words(seed: int) -> np.ndarray:
    """The two words of a seed, the low one first."""
    return np.asarray([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], np.uint32)


def to_int(words: np.ndarray) -> int:
    """The seed of two words."""
    return int(words[0]) | int(words[1]) << 32


class RandomSeed:
    """The seed that is sent when an engine is loaded; at first one from the clock."""

    def __init__(self) -> None:
        self.value = time.time_ns() & _LARGEST

    def send(self, engine: Engine) -> None:
        """Send the seed to the device, and the generators' state that follows from it."""
        engine.put_seed(to_words(self.value))
        drawn = np.random.SeedSequence(self.value).generate_state(RNG_WORDS * engine.prepared.local_replicas)
        engine.put_generators(drawn | 1)  # a state must not be zero

    def set(self, value: int, prepared: Prepared, engine: Engine | None, loaded: bool) -> None:
        """Take a new seed, and send it if the engine is loaded.

        Raises popart_runtime_error where there is no engine yet, TypeError where the value is no unsigned 64-bit
        integer.
        """
        if not 0 <= value <= _LARGEST:
            reason = f"setRandomSeed takes a seed from 0 to {_LARGEST}, got {value}"
            raise refused("setRandomSeed", ["(self, seedValue: int)"], [value], {}, [reason])
        if not prepared.program.random:
            _warn("Trying to set the random seed, but this session has no random behaviour. Doing nothing.")
            return
        if engine is None:
            raise not_prepared("setRandomSeed")
        self.value = value
        if loaded:
            self.send(engine)


def warn_without_seed() -> None:
    """Log that a program without random operators has no seed to return."""
    _warn("Trying to get the random seed, but this session has no random behaviour. Returning 0.")


def _warn(text: str) -> None:
    module_logger("session").warning(text)


def _synthetic(prepared: Prepared) -> bool:
    return prepared.request.options.syntheticDataMode is not SyntheticDataMode.Off


def generator_state(engine: Engine, prepared: Prepared) -> list[int]:
    """State of the random number generators, `RNG_WORDS` numbers per replica; none with synthetic data."""
    return [] if _synthetic(prepared) else [int(w) for w in engine.generators()]


def set_generator_state(values: list[int], engine: Engine, prepared: Prepared) -> None:
    """Set the state of the generators; popart_runtime_error for a list of wrong length."""
    expected = RNG_WORDS * prepared.local_replicas
    if len(values) != expected:
        raise popart_runtime_error(
            f"Devicex::setRngStateValue received rngState of size {len(values)}; was expecting size {expected}"
        )
    if not _synthetic(prepared):
        engine.put_generators(np.asarray(values, np.uint32))


def require_generator_option(prepared: Prepared, what: str) -> None:
    """Raise popart_runtime_error unless the session's options let `what` be called."""
    if not prepared.request.options.enableLoadAndOffloadRNGState:
        raise popart_runtime_error(
            f"Trying to {what[:3]} the RNG state, but the session option enableLoadAndOffloadRNGState must be set to "
            "True."
        )
