"""Helpers shared by the programs of `cases`."""

from __future__ import annotations

import numpy as np

from popart_jax import popdist

OWN = "own "
STEPS = 3
Arrays = dict[str, np.ndarray]


def mine(array: np.ndarray, axis: int = 0) -> np.ndarray:
    """The part of this process's replicas."""
    start = popdist.getReplicaIndexOffset()
    return np.ascontiguousarray(array.take(range(start, start + popdist.getNumLocalReplicas()), axis))
