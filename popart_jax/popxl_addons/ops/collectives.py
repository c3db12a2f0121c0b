"""Differentiable collectives of tensor parallel programs, and collectives over groups of any constant stride."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import jax.numpy as jnp

from ... import popxl
from ...errors import popart_exception
from ...ops import replicas
from ...ops.arrays import Array
from ...popxl import ReplicaGrouping, custom_ops, ops
from ...popxl.custom_ops import GradientOp, Made
from ...popxl.ops.collectives import OPERATORS, group_attributes, group_of, operator_of, refused_gradient
from ..graph import GraphWithNamedArgs
from ..named_tensors import NamedTensors
from ..rts import graph_over, through_io_tiles

_SAME_INPUTS, _SAME_GRADIENTS = "identical_inputs", "identical_grad_inputs"
_OPPOSITE = {"": "", _SAME_INPUTS: _SAME_GRADIENTS, _SAME_GRADIENTS: _SAME_INPUTS}
_REASON = "You need to run the `OpToIdentityPattern` pattern before running the IR."


def _all_reduce(
    x: Array, /, *, op: int, groups: tuple[int, ...], identical_inputs: int = 0, identical_grad_inputs: int = 0
) -> Array:
    return replicas.all_reduce(jnp.asarray(x), op, replicas.groups_from(groups))


_KINDS = {
    kind: custom_ops.define(kind, _all_reduce, names=(name,), gradient=True, reads=())
    for kind, name in (
        ("ReplicatedAllReduceTP", "replicated_all_reduce_TP_out"),
        ("ReplicatedAllReduceStrided", "replicated_all_reduce_strided_out"),
    )
}


def _create(kind: str, mode: str, t: popxl.Tensor, op: str, group: ReplicaGrouping | None) -> popxl.Tensor:
    reduction = _reduction(kind, op)
    grouping = group_of(group)
    attributes = {"op": reduction, **group_attributes(grouping)}
    return _KINDS[kind].single(t, options=_options(kind, mode, attributes), **attributes, **({mode: 1} if mode else {}))


def _options(kind: str, mode: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Options: an identity where inputs are equal; its gradient has the same type, with the two flags exchanged."""
    opposite = _OPPOSITE[mode]
    flags = {opposite: 1} if opposite else {}
    gradient = GradientOp(_KINDS[kind].row, {**attributes, **flags}, lambda: _options(kind, opposite, attributes))
    identity = {"to_identity": True, "unexecutable": _REASON} if mode == _SAME_INPUTS else {}
    return {"gradient": gradient, **identity}


def _reduction(kind: str, op: str) -> int:
    """Number of a reduction; ValueError for an unknown name, popart_exception where the operator does not know it."""
    name = operator_of(op)
    if kind == "ReplicatedAllReduceTP" and name != "add":
        raise popart_exception(
            f"Cannot create {kind}Op op. CollectiveOperator::Add is the only collective operator that is currently "
            "implemented."
        )
    if name not in ("add", "mean"):
        raise popart_exception(
            f"Cannot create {kind}Op op. CollectiveOperator::Add and CollectiveOperator::Mean are the only collective "
            "operators that are currently implemented."
        )
    return int(OPERATORS[name])


def replicated_all_reduce(t: popxl.Tensor, op: str = "add", group: ReplicaGrouping | None = None) -> popxl.Tensor:
    """Sum over a group; the gradient is summed too."""
    return _create("ReplicatedAllReduceTP", "", t, op, group)


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
    return _create("ReplicatedAllReduceStrided", "", t, op, group)


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


def _gather(x: Array, /, *, groups: tuple[int, ...]) -> Array:
    return replicas.all_gather(jnp.asarray(x), replicas.groups_from(groups))


def _gathered(t: popxl.Tensor, *, groups: Sequence[int]) -> Sequence[Made]:
    return [((groups[2] * prod(t.shape),), t.dtype)]


def _scattered(t: popxl.Tensor, *, op: int, groups: Sequence[int]) -> Sequence[Made]:
    return [((ceil(prod(t.shape) / groups[2]),), t.dtype)]


_GATHER = custom_ops.define(
    "ReplicatedAllGatherStrided",
    _gather,
    names=("replicated_all_gather_strided_out",),
    shapes=_gathered,
    gradient=True,
    reads=(),
)


def replicated_all_gather_strided(t: popxl.Tensor, group: ReplicaGrouping | None = None) -> popxl.Tensor:
    """The members' elements one after the other; in the shape of the whole tensor where `t` is a shard."""
    attributes = group_attributes(group_of(group))
    gradient = GradientOp(_SCATTER.row, {"op": _LOCAL, **attributes})
    gathered = _GATHER.single(t, options={"gradient": gradient}, **attributes)
    return ops.reshape_(gathered, t.meta_shape) if t.meta_shape else gathered


def _scatter(x: Array, /, *, op: int, groups: tuple[int, ...]) -> Array:
    return replicas.reduce_scatter(jnp.asarray(x), op, replicas.groups_from(groups))


_LOCAL = int(OPERATORS["local"])
_SCATTER = custom_ops.define(
    "ReplicatedReduceScatterStrided",
    _scatter,
    names=("replicated_reduce_scatter_strided_out",),
    shapes=_scattered,
    gradient=True,
    reads=(),
)


def replicated_reduce_scatter_strided(
    t: popxl.Tensor,
    op: str = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> popxl.Tensor:
    """The part of this member of the reduced, flattened tensor; a shard of `t` if so configured."""
    reduction = _reduction("ReplicatedReduceScatterStrided", op)
    refused = refused_gradient("ReplicatedReduceScatterStrided", op)
    part = _SCATTER.single(t, op=reduction, options=refused, **group_attributes(group_of(group)))
    if configure_output_for_replicated_tensor_sharding:
        part._meta_shape = tuple(t.shape)
    return part
