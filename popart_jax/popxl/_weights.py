"""Host buffers of variables and their layout on the replicas."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import numpy as np

from .dtypes import dtype as Dtype
from .tensor import Variable


def as_device(array: np.ndarray, kind: Dtype) -> np.ndarray:
    """Host data in the type that the device computes with."""
    if kind._is_float8:
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape).view(kind._device)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def as_host(array: np.ndarray, kind: Dtype) -> np.ndarray:
    """Device data in the type that the host shows."""
    if kind._is_float8:
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape).view(kind.as_numpy())
    return array.astype(kind.as_numpy(), copy=False)


def groups_of(variable: Variable) -> list[list[int]]:
    """Replicas of each group."""
    return variable.replica_grouping.groups


def to_replicas(variable: Variable, replicas: int) -> np.ndarray:
    """Host data of a variable for every replica: shape (replicas, ...), or that of one when there is one."""
    data = as_device(np.asarray(variable._host), variable.dtype)
    if replicas == 1:
        return data.reshape(variable.shape)
    groups = variable.replica_grouping.num_groups
    per_group = data.reshape(groups, *variable.shape)
    return per_group[np.asarray(variable.replica_grouping.assignment)]


def from_replicas(variable: Variable, values: np.ndarray, replicas: int) -> np.ndarray:
    """What the host keeps of a variable: the first member of each group."""
    if replicas == 1:
        return as_host(values, variable.dtype).reshape(variable.shape_on_host)
    firsts = [g[0] for g in groups_of(variable)]
    return as_host(values[firsts], variable.dtype).reshape(variable.shape_on_host)


def every_replica(variable: Variable, values: np.ndarray) -> np.ndarray:
    """All replicas' values, ordered by group, then member."""
    order = [r for g in groups_of(variable) for r in g]
    return as_host(values[order], variable.dtype)


def shards_to_replicas(variable: Variable, entry: tuple[int, ...], shards: int, replicas: int) -> np.ndarray:
    """The shard of each replica: group members take consecutive pieces, starting anew after `shards` members."""
    whole = to_replicas(variable, replicas).reshape(replicas, -1)
    size = prod(entry)
    padded = np.zeros((replicas, shards * size), whole.dtype)
    padded[:, : whole.shape[1]] = whole
    out = np.zeros((replicas, *entry), whole.dtype)
    for group in groups_of(variable):
        for member, replica in enumerate(group):
            k = member % shards
            out[replica] = padded[replica, k * size : (k + 1) * size].reshape(entry)
    return out


def shards_from_replicas(variable: Variable, values: np.ndarray, shards: int) -> np.ndarray:
    """The whole tensor for every replica, from the shards that its group holds."""
    n = prod(variable.shape)
    out = np.zeros((values.shape[0], n), values.dtype)
    for group in groups_of(variable):
        whole = np.concatenate([values[r].ravel() for r in group[:shards]])[:n]
        out[group] = whole
    return out.reshape(values.shape[0], *variable.shape)


def stored(variable: Variable) -> Any:
    """Where a remote variable lives, else None."""
    return variable._remote
