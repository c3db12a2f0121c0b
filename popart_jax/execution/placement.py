"""Transfers between host arrays and device arrays: the only place where arrays are put on devices and fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from .._compat.jax import computes_in_callers_thread
from ..buffers import aligned_copy, aligned_empty, is_copied, lasting, shareable
from .program import Type
from .replicas import spec
from .written_results import WrittenResults


def sharding(mesh: Mesh | None, axis: int | None, split: Sequence[Any] = ()) -> NamedSharding | None:
    """Sharding of an array whose dimension `axis` is the replica; None where one device runs all replicas.

    `split` has the mesh axes of its other dimensions.
    """
    return None if mesh is None else NamedSharding(mesh, spec(axis, split))


def put(
    host: np.ndarray, mesh: Mesh | None, axis: int | None, split: Sequence[Any] = (), *, donated: bool
) -> jax.Array:
    """Transfer an array of this process's replicas to the devices.

    `axis` is its replica dimension, `split` the mesh axes of its other ones. A run will reuse the memory of what is
    `donated`, so that it must not be shared with the host's array.
    """
    place = sharding(mesh, axis, split)
    if place is None:
        # not jax.numpy.array: it compiles a program for each shape, which JAX never frees
        return jax.device_put(aligned_copy(host) if donated else lasting(host))
    if jax.process_count() > 1:
        return jax.make_array_from_process_local_data(place, host)
    return jax.device_put(host, place, may_alias=False)


def as_argument(fed: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
    """What to call a program with for a fed array: see `buffers.shareable`, where that keeps it in this thread."""
    return shareable(fed) if isinstance(fed, np.ndarray) and _stays_here() else fed


def at_each_run(fed: np.ndarray) -> np.ndarray | Callable[[], np.ndarray]:
    """An array that is fed at every run; if XLA would copy it, a function that copies it into memory kept for that."""
    if not is_copied(fed) or not _stays_here():
        return fed
    kept = aligned_empty(fed.shape, fed.dtype)

    def copied() -> np.ndarray:
        np.copyto(kept, fed)  # the run before has ended
        return kept

    return copied


@cache
def _stays_here() -> bool:
    return computes_in_callers_thread()


def written_results(kinds: Mapping[str, Type], device: Any = None, *, lends: bool) -> WrittenResults:
    """Memory for the large results of a program on this device, see there."""
    return WrittenResults(kinds, lambda x: jax.device_put(x, device), "JAX", lends=lends, device=device)


def local_part(host: np.ndarray, axis: int) -> np.ndarray:
    """The part of an array of all replicas that belongs to the replicas of this process."""
    local = host.shape[axis] // jax.process_count()
    start = jax.process_index() * local
    return host[(slice(None),) * axis + (slice(start, start + local),)]


def to_every_host(array: jax.Array) -> np.ndarray:
    """Contents of a device array, including other processes' replicas; all processes must call it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return to_host(array)
    import jax.experimental.multihost_utils as multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def to_host(array: jax.Array | np.ndarray) -> np.ndarray:
    """Contents of a device array; those of this process's replicas when several processes share it.

    A failed run raises its error here; NumPy, which reads the memory unchecked, would end the process.
    """
    if isinstance(array, np.ndarray):
        return array
    array.block_until_ready()
    if array.is_fully_addressable:
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_shards[0].data)
    parts = {tuple(i.start or 0 for i in s.index): s for s in array.addressable_shards}  # drops copies on other devices
    shards = [parts[place] for place in sorted(parts)]
    axis = next(i for i, part in enumerate(shards[0].index) if part.start is not None)
    return np.concatenate([np.asarray(s.data) for s in shards], axis)
