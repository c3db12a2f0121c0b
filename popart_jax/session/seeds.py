"""The random seed of a session: 64 bits, kept on the device as two words with the low one first."""

from __future__ import annotations

import time

import numpy as np


def clock_seed() -> int:
    """A seed from the clock."""
    return time.time_ns() & 0xFFFFFFFFFFFFFFFF


def to_words(seed: int) -> np.ndarray:
    """The two words of a seed."""
    return np.asarray([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], np.uint32)


def to_int(words: np.ndarray) -> int:
    """The seed of two words."""
    return int(words[0]) | int(words[1]) << 32
