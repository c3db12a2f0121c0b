"""Communication between replicas."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from ...enums import CollectiveOperator
from ...model import attribute_names
from ...model.node_parts import NodeParts
from .. import replicas
from ..arrays import Array
from ..builder_methods import builder_method
from ..operator import BETWEEN_REPLICAS, EXPENSIVE, MOVES_DATA, NOT_DIFFERENTIABLE, as_graphcore, gradient, operator
from ..registry import lowers
from .losses import DOMAIN


def _write(parts: NodeParts) -> None:
    combined = parts.attributes.pop("collectiveOperator", CollectiveOperator.Add)
    parts.attributes[attribute_names.COLLECTIVE_OPERATOR] = int(combined)
    group = parts.attributes.pop("commGroup", None)
    if group is not None:
        parts.attributes[attribute_names.COMM_GROUP] = [int(group.type), group.replicaGroupSize]


operator(
    "ReplicatedAllReduce",
    EXPENSIVE | BETWEEN_REPLICAS | NOT_DIFFERENTIABLE,
    gradients=(),
    inplace=True,
    popxl=as_graphcore(module="collectives"),
)
builder_method(
    "ReplicatedAllReduce",
    "replicatedallreduce(args, collectiveOperator:CollectiveOperator?, commGroup:CommGroup?)",
    write=_write,
)


@lowers("ReplicatedAllReduce", domain=DOMAIN)
@lowers("ReplicatedAllReduceInplace", domain=DOMAIN)
def replicated_all_reduce(
    x: Array,
    /,
    *,
    __collectiveOperator: int = 0,
    __collectiveReplicaGrouping: Sequence[int] = (),
    __collectiveCommGroup: Sequence[int] = (),
) -> Array:
    """No gradient flows between replicas; with a single replica it is the identity, gradient included."""
    groups = replicas.groups_from(tuple(__collectiveReplicaGrouping or __collectiveCommGroup))
    y = replicas.all_reduce(x, __collectiveOperator, groups)
    return y if replicas.replica_count() == 1 else lax.stop_gradient(y)


operator(
    "ReplicatedReduceScatter",
    MOVES_DATA | EXPENSIVE | BETWEEN_REPLICAS,
    gradients=gradient(name="ReplicatedAllGather"),
    popxl=as_graphcore(module="collectives"),
)
builder_method(
    "ReplicatedReduceScatter",
    "replicatedreducescatter(args, collectiveOperator:CollectiveOperator?, commGroup:CommGroup?)",
    write=_write,
    shaped=False,
)


@lowers("ReplicatedReduceScatter", domain=DOMAIN)
def replicated_reduce_scatter(
    x: Array,
    linked: Array | None = None,
    /,
    *,
    __collectiveOperator: int = 0,
    __collectiveReplicaGrouping: Sequence[int] = (),
    __collectiveCommGroup: Sequence[int] = (),
    __replicatedTensorSharding: int = 0,
) -> Array:
    """Differentiated as a local slice only, as upstream."""
    groups = replicas.groups_from(tuple(__collectiveReplicaGrouping or __collectiveCommGroup))
    y = replicas.reduce_scatter(jnp.asarray(x), __collectiveOperator, groups)
    return y if __collectiveOperator == replicas.LOCAL else lax.stop_gradient(y)


operator(
    "ReplicatedAllGather",
    MOVES_DATA | EXPENSIVE | BETWEEN_REPLICAS,
    gradients=gradient(name="ReplicatedReduceScatter"),
    popxl=as_graphcore(module="collectives"),
)


@lowers("ReplicatedAllGather", domain=DOMAIN)
def replicated_all_gather(
    x: Array, linked: Array | None = None, /, *, __collectiveReplicaGrouping: Sequence[int] = ()
) -> Array:
    return replicas.all_gather(jnp.asarray(x), replicas.groups_from(tuple(__collectiveReplicaGrouping)))
