"""Initial values of layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def truncated_normal(shape: Sequence[int], sigma: float = 0.02) -> np.ndarray:
    """Normal values of deviation `sigma`, drawn again where they lie beyond two deviations; NumPy's global stream."""
    values = np.random.normal(0.0, 1.0, shape)
    flat = values.reshape(-1)
    outside = np.flatnonzero(np.abs(flat) > 2)
    while outside.size:
        flat[outside] = drawn = np.random.normal(0.0, 1.0, outside.size)
        outside = outside[np.abs(drawn) > 2]
    values *= sigma
    return values.astype(np.float32)


def host_array(parameter: object, dtype: object) -> np.ndarray:
    """A torch parameter as an array of the NumPy type of a PopXL dtype."""
    from ...popxl.utils import to_numpy

    return to_numpy(parameter, dtype)  # pyright: ignore[reportArgumentType]
