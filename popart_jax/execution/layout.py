"""Layout of variables on the device: one value per replica or one for all, dimensions in the order the step reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .program import Variable


def to_device_layout(variable: Variable, host: np.ndarray) -> np.ndarray:
    """A variable, given as one value per group, as a resident array: one value per replica, or a single one."""
    return to_device_order(variable, _one_per_replica(variable, host))


def to_device_order(variable: Variable, array: Any) -> Any:
    """A variable's array, NumPy or traced, with the dimensions of each value permuted to the device's order."""
    if variable.order is None:
        return array
    lead = array.ndim - len(variable.order)
    return array.transpose(*range(lead), *(lead + i for i in variable.order))


def from_device_order(variable: Variable, array: Any) -> Any:
    """A resident variable, NumPy or traced, with the dimensions of each value in the model's order."""
    if variable.order is None:
        return array
    lead = array.ndim - len(variable.order)
    return array.transpose(*range(lead), *(lead + variable.order.index(i) for i in range(len(variable.order))))


def _one_per_replica(variable: Variable, host: np.ndarray) -> np.ndarray:
    if not variable.individual:
        return host.reshape(variable.type.shape)
    of_groups = host.reshape((len(variable.groups), *variable.type.shape))
    rows = np.empty(sum(map(len, variable.groups)), np.intp)
    for g, members in enumerate(variable.groups):
        rows[list(members)] = g
    return of_groups[rows]


def group_values(variable: Variable, device: np.ndarray) -> np.ndarray:
    """One value per group, that of its lowest replica; a single group has no leading dimension."""
    if not variable.individual:
        return device
    picked = device[[members[0] for members in variable.groups]]
    return picked if len(variable.groups) > 1 else picked[0]


def replica_values(variable: Variable, device: np.ndarray, replicas: int) -> np.ndarray:
    """One value per replica."""
    return device if variable.individual else np.broadcast_to(device, (replicas, *device.shape))


def device_shape(variable: Variable, replicas: int) -> Sequence[int]:
    """Shape of a variable on the device."""
    shape = variable.type.shape
    turned = shape if variable.order is None else tuple(shape[i] for i in variable.order)
    return (replicas, *turned) if variable.individual else turned
