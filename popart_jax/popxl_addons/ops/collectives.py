"""Differentiable collectives of tensor parallel programs, and collectives over groups of any constant stride."""

from __future__ import annotations

from functools import partial
from math import ceil, prod
from typing import Any

import jax
import jax.numpy as jnp

from ... import popxl
from ...ops import replicas
from ...popxl import ReplicaGrouping, custom_ops, ops
from ...popxl.ops._collectives import group_attributes, group_of
from ..graph import GraphWithNamedArgs
from ..named_tensors import NamedTensors
from ..rts import graph_over, through_io_tiles
from .simple import DOMAIN

_PLAIN, _SAME_INPUTS, _SAME_GRADIENTS = "plain", "identical_inputs", "identical_grad_inputs"
_REASON = (
    "its inputs are identical, so it must become an identity first. "
    "fix: popxl_addons.patterns.apply_pre_alias_patterns(ir) before the session is made"
)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _reduce(x: Any, groups: tuple[int, ...], mode: str) -> Any:
    """Sum over the group; nothing where the inputs are identical."""
    return x if mode == _SAME_INPUTS else _sum(x, groups)


def _sum(x: Any, groups: tuple[int, ...]) -> Any:
    return replicas.all_reduce(jnp.asarray(x), 0, replicas.groups_from(groups))


def _reduce_fwd(x: Any, groups: tuple[int, ...], mode: str) -> tuple[Any, None]:
    return _reduce(x, groups, mode), None


def _reduce_bwd(groups: tuple[int, ...], mode: str, _: None, dy: Any) -> tuple[Any]:
    return (dy if mode == _SAME_GRADIENTS else _sum(dy, groups),)


_reduce.defvjp(_reduce_fwd, _reduce_bwd)


def _all_reduce(x, /, *, groups, mode):
    return _reduce(x, groups, mode)


_KINDS = {
    kind: custom_ops.define(
        kind, _all_reduce, domain=DOMAIN, names=("replicated_all_reduce_out",), gradient=True, reads=()
    )
    for kind in ("ReplicatedAllReduceTP", "ReplicatedAllReduceStrided")
}


def _create(kind: str, mode: str, t: popxl.Tensor, op: str, group: ReplicaGrouping | None) -> popxl.Tensor:
    if op != "add":
        raise NotImplementedError(f"only the reduction 'add' is supported, got {op!r}")
    options = {"to_identity": True, "unexecutable": _REASON} if mode == _SAME_INPUTS else {}
    attributes = {**group_attributes(group_of(group)), "mode": mode}
    return _KINDS[kind].single(t, options=options, **attributes)


def replicated_all_reduce(t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None) -> popxl.Tensor:
    """Sum over a group; the gradient is summed too."""
    return _create("ReplicatedAllReduceTP", _PLAIN, t, op, group)


def replicated_all_reduce_identical_inputs(
    t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The tensor itself, equal on all members; its gradient is summed over the group."""
    return _create("ReplicatedAllReduceTP", _SAME_INPUTS, t, op, group)


def replicated_all_reduce_identical_grad_inputs(
    t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> popxl.Tensor:
    """Sum over a group; the gradient, equal on all members, passes unchanged."""
    return _create("ReplicatedAllReduceTP", _SAME_GRADIENTS, t, op, group)


def replicated_all_reduce_strided(
    t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> popxl.Tensor:
    """`replicated_all_reduce` over a group of any constant stride."""
    return _create("ReplicatedAllReduceStrided", _PLAIN, t, op, group)


def replicated_all_reduce_strided_identical_inputs(
    t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> popxl.Tensor:
    """`replicated_all_reduce_identical_inputs` over a group of any constant stride."""
    return _create("ReplicatedAllReduceStrided", _SAME_INPUTS, t, op, group)


def replicated_all_reduce_strided_identical_grad_inputs(
    t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> popxl.Tensor:
    """`replicated_all_reduce_identical_grad_inputs` over a group of any constant stride."""
    return _create("ReplicatedAllReduceStrided", _SAME_GRADIENTS, t, op, group)


def replicated_all_reduce_strided_graph(
    tensors: NamedTensors, op: str = "add", group: ReplicaGrouping | None = None, use_io_tiles: bool = False
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that sums every named tensor; outputs in the order of the returned, sorted names."""

    def reduce(name: str, t: popxl.Tensor) -> popxl.Tensor:
        def summed(t: popxl.Tensor) -> popxl.Tensor:
            return replicated_all_reduce_strided(t, op, group)

        return through_io_tiles(summed, t) if use_io_tiles else summed(t)

    return graph_over("replicated_all_reduce_strided", tensors, reduce)


def _gather(x, /, *, groups):
    return replicas.all_gather(jnp.asarray(x), replicas.groups_from(groups))


_GATHER = custom_ops.define(
    "ReplicatedAllGatherStrided",
    _gather,
    domain=DOMAIN,
    names=("replicated_all_gather_out",),
    shapes=lambda t, *, groups: [((groups[2] * prod(t.shape),), t.dtype)],
)


def replicated_all_gather_strided(t: popxl.Tensor, group: ReplicaGrouping | None = None) -> popxl.Tensor:
    """The members' elements one after the other; in the shape of the whole tensor where `t` is a shard."""
    gathered = _GATHER.single(t, **group_attributes(group_of(group)))
    return ops.reshape_(gathered, t.meta_shape) if t.meta_shape else gathered


def _scatter(x, /, *, groups):
    return replicas.reduce_scatter(jnp.asarray(x), 0, replicas.groups_from(groups))


_SCATTER = custom_ops.define(
    "ReplicatedReduceScatterStrided",
    _scatter,
    domain=DOMAIN,
    names=("replicated_reduce_scatter_out",),
    shapes=lambda t, *, groups: [((ceil(prod(t.shape) / groups[2]),), t.dtype)],
)


def replicated_reduce_scatter_strided(
    t: popxl.Tensor,
    op: str = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> popxl.Tensor:
    """The part of this member of the summed, flattened tensor; a shard of `t` if so configured."""
    if op != "add":
        raise NotImplementedError(f"only the reduction 'add' is supported, got {op!r}")
    part = _SCATTER.single(t, **group_attributes(group_of(group)))
    if configure_output_for_replicated_tensor_sharding:
        part._meta_shape = tuple(t.shape)
    return part
