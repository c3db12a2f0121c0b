"""Replicated tensor sharding: specs, gathers and reductions of shards."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from .. import popxl
from ..popxl import ReplicaGrouping, TensorSpec, ops
from .graph import GraphWithNamedArgs
from .named_replica_grouping import NamedReplicaGrouping, fill_none_group
from .named_tensors import NamedTensors


def replica_sharded_spec(t: popxl.Tensor | TensorSpec, shard_over: ReplicaGrouping) -> TensorSpec:
    """Spec of a shard of `t` over a group; `t`'s own where it is a shard already or can't be divided."""
    size = shard_over.group_size
    spec = t.spec if isinstance(t, popxl.Tensor) else t
    elements = prod(spec.shape)
    if spec.meta_shape or size == 1 or elements % size:
        return spec
    return TensorSpec((elements // size,), spec.dtype, tuple(spec.shape))


def _all() -> ReplicaGrouping:
    return popxl.gcg().ir.replica_grouping()


def gather_replica_sharded_tensor(
    t: popxl.Tensor, use_io_tiles: bool = False, replica_group: ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The whole tensor of a shard; other tensors as they are."""
    if not t.meta_shape:
        return t
    if not use_io_tiles:
        return ops.collectives.replicated_all_gather(t, group=replica_group)
    with popxl.io_tiles():
        gathered = ops.collectives.replicated_all_gather(t, group=replica_group)
    return ops.io_tile_copy(gathered)


def reduce_replica_sharded_tensor(
    t: popxl.Tensor,
    op: str = "add",
    replica_group: ReplicaGrouping | None = None,
    shard_group: ReplicaGrouping | None = None,
) -> popxl.Tensor:
    """Reduce over `replica_group`; the result is sharded over `shard_group` where it can be divided."""
    over = fill_none_group(replica_group, _all())
    shards = fill_none_group(shard_group, over)
    divisible = shards.group_size > 1 and t.nelms % shards.group_size == 0
    if divisible and over.group_size == 1:
        return ops.collectives.replica_sharded_slice(t, shards)
    if divisible and shards == over:
        return ops.collectives.replicated_reduce_scatter(t, op, over, True)  # pyright: ignore[reportArgumentType]
    reduced = ops.collectives.replicated_all_reduce(t, op, over)  # pyright: ignore[reportArgumentType]
    return ops.collectives.replica_sharded_slice(reduced, shards) if divisible else reduced


def all_gather_replica_sharded_graph(
    tensors: NamedTensors, use_io_tiles: bool = False, replica_groups: NamedReplicaGrouping | None = None
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that gathers every named tensor; outputs in the order of the returned, sorted names."""
    groups = {} if replica_groups is None else replica_groups.to_dict()

    def gather(name: str, t: popxl.Tensor) -> popxl.Tensor:
        return gather_replica_sharded_tensor(t, use_io_tiles, groups.get(name))

    return graph_over("all_gather_replica_sharded", tensors, gather)


def reduce_replica_sharded_graph(
    tensors: NamedTensors,
    op: str = "add",
    use_io_tiles: bool = False,
    shard_groups: NamedReplicaGrouping | None = None,
    replica_group: ReplicaGrouping | None = None,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that reduces every named tensor; outputs in the order of the returned, sorted names."""
    groups = {} if shard_groups is None else shard_groups.to_dict()

    def reduce(name: str, t: popxl.Tensor) -> popxl.Tensor:
        def sharded(t: popxl.Tensor) -> popxl.Tensor:
            return reduce_replica_sharded_tensor(t, op, replica_group, groups.get(name))

        return through_io_tiles(sharded, t) if use_io_tiles else sharded(t)

    return graph_over("reduce_replica_sharded", tensors, reduce)


def through_io_tiles(fn: Callable[[popxl.Tensor], popxl.Tensor], t: popxl.Tensor) -> popxl.Tensor:
    """`fn` of a tensor on IO tiles, copied there and back."""
    copied = ops.io_tile_copy(t)
    with popxl.io_tiles():
        found = fn(copied)
    return ops.io_tile_copy(found)


def graph_over(
    title: str, tensors: NamedTensors, fn: Callable[[str, popxl.Tensor], popxl.Tensor]
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph with one named input for each tensor and `fn` of it as output, in sorted order."""
    owner = popxl.gcg().ir
    graph = owner._new_graph(owner._subgraph_id(title))
    names, leaves = tensors.unpack()
    args = NamedTensors()
    with graph, popxl.in_sequence(False):
        for name, t in zip(names, leaves, strict=True):
            given = popxl.graph_input(t.shape, t.dtype, name, meta_shape=t.meta_shape)
            args.insert(name, given, overwrite=True)
            popxl.graph_output(fn(name, given))
    return GraphWithNamedArgs(graph, args), list(names)
