"""Host buffers of variables and their arrangement on the replicas."""

from __future__ import annotations

from math import prod

import numpy as np

from ...errors import popart_exception
from ...execution import Type
from ...execution import Variable as Resident
from ...execution.layout import group_values, to_device_layout
from ...ops.arrays import device_dtype
from ..dtypes import dtype as Dtype
from ..tensor import Variable


def resident(variable: Variable, replicas: int) -> Resident:
    """A variable as a resident array: one value per replica, since a program may change each replica's value."""
    groups = variable.replica_grouping.groups if replicas > 1 else [[0]]
    kind = Type(variable.shape, device_dtype(variable.dtype._device))
    return Resident(kind, tuple(map(tuple, groups)), drifts=True)


def as_device(array: np.ndarray, kind: Dtype) -> np.ndarray:
    """Host data in the device's element type."""
    if kind._is_float8:
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape).view(kind._device)
    return array.astype(device_dtype(array.dtype), copy=False)


def as_host(array: np.ndarray, kind: Dtype) -> np.ndarray:
    """Device data in the host's element type."""
    if kind._is_float8:
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape).view(kind.as_numpy())
    return array.astype(kind.as_numpy(), copy=False)


def host_values(variable: Variable) -> np.ndarray:
    """Host data of a variable, one value per group, in the device's type; popart_exception if that does not hold it."""
    host = np.asarray(variable._host)
    held = as_device(host, variable.dtype)
    if variable.dtype.is_int and held.dtype != host.dtype and not np.array_equal(held, host):
        raise popart_exception(f"{variable!r} can't be uploaded: the device's {held.dtype} does not hold its numbers.")
    return held


def to_replicas(variable: Variable, replicas: int) -> np.ndarray:
    """Host data of a variable for every replica: shape (replicas, ...), or that of one when there is one."""
    return to_device_layout(resident(variable, replicas), host_values(variable))


def from_replicas(variable: Variable, values: np.ndarray, replicas: int) -> np.ndarray:
    """The host's copy of a variable: the value of the first member of each group."""
    firsts = group_values(resident(variable, replicas), values)
    return as_host(firsts, variable.dtype).reshape(variable.shape_on_host)


def every_replica(variable: Variable, values: np.ndarray) -> np.ndarray:
    """All replicas' values, ordered by replica."""
    return as_host(values, variable.dtype)


def entry_of(variable: Variable, entry: tuple[int, ...], replicas: int) -> np.ndarray:
    """Entry of a remote buffer filled from a variable, for every replica: as many elements as both have."""
    whole = to_replicas(variable, replicas).reshape(replicas, -1)
    out = np.zeros((replicas, prod(entry)), whole.dtype)
    n = min(out.shape[1], whole.shape[1])
    out[:, :n] = whole[:, :n]
    return out.reshape(replicas, *entry)


def values_of_entries(variable: Variable, entries: np.ndarray, _: int) -> np.ndarray:
    """A variable from its entry of every replica; elements that the entry lacks are the host's."""
    found = entries.reshape(entries.shape[0], -1)
    n = prod(variable.shape)
    if found.shape[1] < n:
        out = to_replicas(variable, found.shape[0]).reshape(found.shape[0], n).copy()
        out[:, : found.shape[1]] = found
        found = out
    return found[:, :n].reshape(-1, *variable.shape)


def shards_to_replicas(variable: Variable, entry: tuple[int, ...], shards: int, replicas: int) -> np.ndarray:
    """The shard of each replica: group members take consecutive pieces, starting anew after `shards` members."""
    whole = to_replicas(variable, replicas).reshape(replicas, -1)
    size = prod(entry)
    padded = np.zeros((replicas, shards * size), whole.dtype)
    padded[:, : whole.shape[1]] = whole
    out = np.zeros((replicas, *entry), whole.dtype)
    for group in variable.replica_grouping.groups:
        for member, replica in enumerate(group):
            k = member % shards
            out[replica] = padded[replica, k * size : (k + 1) * size].reshape(entry)
    return out


def shards_from_replicas(variable: Variable, values: np.ndarray, shards: int) -> np.ndarray:
    """The whole tensor for every replica, from the shards in its group."""
    n = prod(variable.shape)
    out = np.zeros((values.shape[0], n), values.dtype)
    for group in variable.replica_grouping.groups:
        for first in range(0, len(group), shards):
            holders = group[first : first + shards]
            out[holders] = np.concatenate([values[r].ravel() for r in holders])[:n]
    return out.reshape(values.shape[0], *variable.shape)
