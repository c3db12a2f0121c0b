"""Seeds made on the host."""

from __future__ import annotations

import numpy as np

MAX_UINT64 = 2**64 - 1
_MAX_UINT32 = 2**32 - 1


def create_seeds(
    seed: int, offset: int = 0, batches_per_step: int = 1, gradient_accumulation_factor: int = 1, replicas: int = 1
) -> np.ndarray:
    """Seeds for the random operators, from one number.

    Parameters
    ----------
    seed, offset : int
        Their sum seeds NumPy's generator.
    batches_per_step, gradient_accumulation_factor, replicas : int
        How many seeds are needed along each axis.

    Returns
    -------
    ndarray of uint32, shape (batches_per_step, gradient_accumulation_factor, replicas, 2) without its axes of length 1
        High and low word of each seed.
    """
    rng = np.random.default_rng(seed + offset)
    shape = (batches_per_step, gradient_accumulation_factor, replicas)
    words = rng.integers(low=0, high=MAX_UINT64, size=shape, dtype=np.uint64, endpoint=True)
    pairs = np.stack(
        [(words >> np.uint64(32)).astype(np.uint32), (words & np.uint64(_MAX_UINT32)).astype(np.uint32)], -1
    )
    return np.squeeze(pairs)


def uint64_to_two_uint32(num: int) -> tuple[int, int]:
    """High and low word of a number.

    Raises
    ------
    ValueError
        `num` does not fit 64 bits.
    """
    if not 0 <= num <= MAX_UINT64:
        raise ValueError(f"Number is negative or cannot be represented as a uint64: {num}")
    return int(num) >> 32, int(num) & _MAX_UINT32


def two_uint32_to_uint64(a: int, b: int) -> int:
    """The number whose high word is `a` and whose low word is `b`.

    Raises
    ------
    ValueError
        A word does not fit 32 bits.
    """
    if not (0 <= a <= _MAX_UINT32 and 0 <= b <= _MAX_UINT32):
        raise ValueError(f"Either `a` or `b` are negative or cannot be represented as a uint32: {a}, {b}")
    return (int(a) << 32) | int(b)
