"""Remote buffers by name, and the graphs that load from and store to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from .. import popxl
from ..popxl import RemoteBuffer, ReplicaGrouping, TensorSpec, ops
from ..popxl.errors import UndefinedValue
from ..popxl.transforms import merge_exchange
from .graph import GraphWithNamedArgs
from .named_remote_buffers import NamedRemoteBuffers as NamedRemoteBuffers
from .named_tensors import NamedTensors
from .variable_factory import NamedVariableFactories, VariableFactory


def create_remote_buffer(
    spec: TensorSpec | popxl.Tensor,
    entries: int = 1,
    replica_group: ReplicaGrouping | None = None,
    shard_over: int | None = None,
) -> RemoteBuffer:
    """A buffer for tensors of a spec; sharded when `shard_over` is more than 1, or when the spec is a shard.

    Raises
    ------
    ValueError
        The elements can't be divided among the shards.
    """
    shape, meta = tuple(spec.shape), tuple(spec.meta_shape or ())
    shards = 1 if shard_over is None else shard_over
    if not meta and shards > 1:
        elements = math.prod(shape)
        if elements % shards:
            raise ValueError(f"Can't shard tensor with {elements} elements over {shards} replicas")
        shape, meta = (elements // shards,), shape
    buffer = popxl.remote_buffer(shape, spec.dtype, entries)
    buffer.meta_shape = meta
    return buffer


def named_buffers(tensors: NamedTensors, entries: int = 1) -> NamedRemoteBuffers:
    """One buffer for each tensor, shaped like it."""
    return NamedRemoteBuffers.from_dict(
        {k: create_remote_buffer(t.spec, entries) for k, t in tensors.to_dict().items()}
    )


def named_variable_buffers(
    factories: NamedVariableFactories, entries: int = 1, shard_over_dict: Mapping[str, int] | int | bool = True
) -> NamedRemoteBuffers:
    """One buffer for each factory.

    Parameters
    ----------
    shard_over_dict : bool, int or mapping
        True shards over the factory's whole group, False or 1 not at all, a number over that many replicas, a mapping
        says it by name (missing: the whole group).

    Raises
    ------
    ValueError
        Another type, or a number outside 1 to the size of the group.
    """
    made: dict[str, popxl.RemoteBuffer] = {}
    for name, factory in factories.to_dict().items():
        shards = _shards(name, factory, shard_over_dict)
        spec = TensorSpec(factory.shape, factory.dtype, factory.meta_shape or ())
        made[name] = create_remote_buffer(spec, entries, factory.replica_grouping, shards)
    return NamedRemoteBuffers.from_dict(made)


def _shards(name: str, factory: VariableFactory, wanted: Mapping[str, int] | int | bool) -> int:
    whole = factory.replica_grouping.group_size
    if isinstance(wanted, bool):
        return whole if wanted else 1
    if not isinstance(wanted, (int, Mapping)):
        raise ValueError("shard_over_dict must be a dictionary, an integer or a boolean")
    count = wanted if isinstance(wanted, int) else wanted.get(name, whole)
    if not 1 <= count <= whole:
        raise ValueError(f"Invalid shard_over_dict int value: {count}")
    return count


def _grow(buffers: NamedRemoteBuffers, entries: int) -> None:
    for buffer in buffers.values_flat():
        buffer.entries = max(buffer.entries, entries)


def _sorted(buffers: NamedRemoteBuffers) -> list[tuple[str, RemoteBuffer]]:
    return sorted(buffers.to_dict().items(), key=lambda pair: pair[0])


def _loaded(
    buffers: NamedRemoteBuffers, entry: int | popxl.Tensor, use_io_tiles: bool, merged: bool
) -> list[tuple[str, popxl.Tensor]]:
    """(name, loaded tensor) in the order of the names; `merged` into one exchange."""
    with popxl.in_sequence(False):
        with merge_exchange() if merged else nullcontext(), popxl.io_tiles() if use_io_tiles else nullcontext():
            loaded = [(name, ops.remote_load(buffer, entry, name)) for name, buffer in _sorted(buffers)]
        return [(name, ops.io_tile_copy(t)) for name, t in loaded] if use_io_tiles else loaded


def _store(
    buffers: NamedRemoteBuffers,
    tensors: Mapping[str, popxl.Tensor],
    entry: int | popxl.Tensor,
    use_io_tiles: bool,
    merged: bool,
) -> None:
    """Store tensors into the buffers of their names, `merged` into one exchange."""
    with popxl.in_sequence(False):
        if use_io_tiles:
            tensors = {name: ops.io_tile_copy(t) for name, t in tensors.items() if name in buffers}
            entry = on_io_tiles(entry)
        with merge_exchange() if merged else nullcontext(), popxl.io_tiles() if use_io_tiles else nullcontext():
            for name, buffer in _sorted(buffers):
                ops.remote_store(buffer, entry, tensors[name])


def on_io_tiles(entry: int | popxl.Tensor) -> int | popxl.Tensor:
    """A buffer index that is on the IO tiles, as a transfer there needs."""
    if isinstance(entry, int):
        return entry
    try:
        return ops.io_tile_copy(entry) if entry.tile_set == "compute" else entry
    except UndefinedValue:  # a graph input, which is placed with its users
        return entry


def load_remote(buffers: NamedRemoteBuffers, entry: int | popxl.Tensor = 0, use_io_tiles: bool = False) -> NamedTensors:
    """Load one entry of every buffer in the current graph."""
    return NamedTensors.from_dict(dict(_loaded(buffers, entry, use_io_tiles, merged=False)))


def store_remote(
    buffers: NamedRemoteBuffers, tensors: NamedTensors, entry: int | popxl.Tensor = 0, use_io_tiles: bool = False
) -> None:
    """Store tensors into an entry of the buffers of the same names, in the current graph."""
    _store(buffers, tensors.to_dict(), entry, use_io_tiles, merged=False)


def load_remote_graph(
    buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that loads an entry of every buffer, all at once; outputs in the order of the returned, sorted names."""
    _grow(buffers, entries)

    def load_remote(load_index: popxl.Tensor) -> list[popxl.Tensor]:
        return [t for _, t in _loaded(buffers, load_index, use_io_tiles, merged=True)]

    return GraphWithNamedArgs(_create("load_remote", load_remote)), [name for name, _ in _sorted(buffers)]


def store_remote_graph(buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False) -> GraphWithNamedArgs:
    """A graph that stores its named inputs, all at once, into an entry of the buffers of the same names."""
    _grow(buffers, entries)
    args = NamedTensors()

    def store_remote(store_index: popxl.Tensor) -> None:
        for name, buffer in _sorted(buffers):
            meta = buffer.meta_shape
            t = popxl.graph_input(buffer.tensor_shape, buffer.tensor_dtype, name, meta_shape=meta)
            args.insert(name, t, overwrite=True)
        _store(buffers, args.to_dict(), store_index, use_io_tiles, merged=True)

    return GraphWithNamedArgs(_create("store_remote", store_remote), args)


def _create(name: str, fn: Callable[..., Any]) -> popxl.Graph:
    fn.__qualname__ = name
    return popxl.gcg().ir.create_graph(fn, TensorSpec((), popxl.int32))
