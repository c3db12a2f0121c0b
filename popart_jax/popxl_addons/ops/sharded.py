"""Losses and normalisation over an axis that is sharded over replicas or IPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ... import popxl
from ...errors import popart_exception, popart_internal_exception
from ...ops import replicas
from ...ops.arrays import Array
from ...popxl import ReplicaGrouping, custom_ops, ops
from ...popxl._internal.placement import placement
from ...popxl.custom_ops import Made
from ...popxl.ops.collectives import group_attributes, group_of
from ...popxl.ops.nn import reduction_name

REDUCTION_TYPE = Literal["mean", "sum", "none"]
_ADD, _MAX = 0, 4


def _is_label(logits: Any, indices: Any) -> Any:
    """Where a class of this shard is the sample's label."""
    return indices.astype(jnp.int32)[..., None] == jnp.arange(logits.shape[-1], dtype=jnp.int32)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _loss(logits: Any, indices: Any, groups: tuple[int, ...]) -> tuple[Any, Any]:
    reduce = partial(replicas.all_reduce, groups=replicas.groups_from(groups))
    wide = logits.astype(jnp.float32)
    shifted = wide - reduce(wide.max(-1, keepdims=True), _MAX)
    total = reduce(jnp.exp(shifted).sum(-1, keepdims=True), _ADD)
    chosen = reduce(jnp.where(_is_label(wide, indices), shifted, 0).sum(-1), _ADD)
    softmax = jnp.exp(shifted) / total
    return (jnp.log(total[..., 0]) - chosen).astype(logits.dtype), softmax.astype(logits.dtype)


def _loss_fwd(logits: Any, indices: Any, groups: tuple[int, ...]) -> tuple[Any, Any]:
    loss, softmax = cast(Any, _loss(logits, indices, groups))
    return (loss, softmax), (softmax, indices)


def _loss_bwd(groups: tuple[int, ...], kept: Any, gradients: Any) -> tuple[Any, Any]:
    softmax, indices = kept
    hot = _is_label(softmax, indices).astype(softmax.dtype)
    return gradients[0][..., None] * (softmax - hot), np.zeros(indices.shape, jax.dtypes.float0)


_loss.defvjp(_loss_fwd, _loss_bwd)


def _cross_entropy(logits: Array, indices: Array, /, *, groups: tuple[int, ...]):
    return _loss(logits, indices, groups)


def _loss_and_softmax(logits: popxl.Tensor, indices: popxl.Tensor, *, groups: Sequence[int]) -> Sequence[Made]:
    return [(indices.shape, logits.dtype), (logits.shape, logits.dtype)]


_CROSS_ENTROPY = custom_ops.define(
    "CrossEntropySharded",
    _cross_entropy,
    names=("cross_entropy_sharded_loss", "cross_entropy_sharded_softmax"),
    shapes=_loss_and_softmax,
    gradient=True,
)


def cross_entropy_sharded_loss(
    logits: popxl.Tensor,
    indices: popxl.Tensor,
    ignore_index: popxl.Tensor | None = None,
    replica_grouping: ReplicaGrouping | None = None,
    reduction: REDUCTION_TYPE = "mean",
    available_memory_proportion: float = 0.4,
) -> popxl.Tensor:
    """Cross entropy of logits whose classes are sharded over a group; the same on each member.

    Parameters
    ----------
    logits : Tensor (n, classes / members)
    indices : Tensor (n,)
        Labels with the shard's offset taken off.
    ignore_index : Tensor, optional
        Samples with this label count nothing.

    Raises
    ------
    ValueError
        Unknown reduction.
    popart_exception
        Logits that are no matrix, or labels that are no vector.
    """
    reduction_name(reduction)
    if (logits.rank, indices.rank) != (2, 1):
        raise popart_exception(
            f"CrossEntropyShardedOp takes logits of rank 2 and indices of rank 1, got shapes {logits.shape} "
            f"and {indices.shape}"
        )
    groups = group_attributes(group_of(replica_grouping))
    loss = _CROSS_ENTROPY.single(logits, indices, **groups)
    if ignore_index is None:
        return loss if reduction == "none" else {"mean": ops.mean, "sum": ops.sum}[reduction](loss)
    mask = ops.cast(ops.logical_not(ops.equal(indices, ignore_index)), loss.dtype)
    masked = loss * mask
    if reduction == "none":
        return masked
    total = ops.sum(masked)
    return total if reduction == "sum" else total / ops.sum(mask)


def _cross_entropy_ipus(*tensors: Array, shards: int) -> jax.Array:
    logits, indices = jnp.concatenate(tensors[:shards], -1), tensors[shards].astype(jnp.int32)
    wide = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(wide, indices[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(wide, -1) - chosen).astype(logits.dtype)


def _loss_across_ipus(*tensors: popxl.Tensor, shards: int) -> Sequence[Made]:
    return [(tensors[shards].shape, tensors[0].dtype)]


_ACROSS_IPUS: dict[int, Any] = {}


def _across_ipus(shards: int) -> Any:
    """The operator for a number of shards: its gradients are those of the logits."""
    if shards not in _ACROSS_IPUS:
        _ACROSS_IPUS[shards] = custom_ops.define(
            "CrossEntropyShardedWR",
            _cross_entropy_ipus,
            class_name=f"CrossEntropyShardedWR{shards}Op",
            names=("cross_entropy_sharded_wr_loss",),
            shapes=_loss_across_ipus,
            gradient=True,
            gradient_of=tuple(range(shards)),
            reads=tuple(f"i{i}" for i in range(shards + 1)),
        )
    return _ACROSS_IPUS[shards]


def handle_ipus(ts: list[popxl.Tensor], ipus: Iterable[int] | None) -> list[int]:
    """IPU of each tensor, as given or as the tensors say; ValueError unless there is one for each."""
    found = [t.ipu for t in ts] if ipus is None else list(ipus)
    if len(found) != len(ts):
        raise ValueError(
            f"Number of specified tensor does not equal number of specified IPUs. {len(ts)} != {len(found)}"
        )
    return found


def cross_entropy_sharded_wr_loss(
    logits: list[popxl.Tensor], indices: list[popxl.Tensor], ipus: Iterable[int] | None = None
) -> popxl.Tensor:
    """Unreduced cross entropy of logits whose classes are sharded over the IPUs of a replica, on the first one's IPU.

    Raises
    ------
    ValueError
        The lists differ in length, or lie on other IPUs.
    """
    if len(logits) != len(indices):
        raise ValueError("You must provide the same number of logits and indices.")
    places = handle_ipus(logits, ipus)
    known = [placement(t)[0] for t in indices]
    if any(ipu not in (None, place) for ipu, place in zip(known, places, strict=True)):
        raise ValueError("The logits and indices IPUs do not match.")
    first, *others = places
    here = [logits[0]]
    for t, place in zip(logits[1:], others, strict=True):
        here.append(t if place == first else ops.ipu_copy(t, first, place))
    with popxl.ipu(first):
        return _across_ipus(len(logits)).single(*here, indices[0], shards=len(logits))


def _layer_norm(
    t: Array, w: Array, b: Array, /, *, groups: tuple[int, ...], epsilon: float
) -> tuple[Array, Array, jax.Array]:
    reduce = partial(replicas.all_reduce, groups=replicas.groups_from(groups))
    wide = t.astype(jnp.float32)
    width = t.shape[-1] * groups[2]
    mean = reduce(wide.sum(-1, keepdims=True), _ADD) / width
    variance = reduce(jnp.square(wide - mean).sum(-1, keepdims=True), _ADD) / width
    inverse = lax.rsqrt(variance + epsilon)
    y = (wide - mean) * inverse * w + b
    return y.astype(t.dtype), mean[..., 0], inverse[..., 0]


def _norm_and_statistics(t: popxl.Tensor, *_: popxl.Tensor, groups: Sequence[int], epsilon: float) -> Sequence[Made]:
    return [(t.shape, t.dtype), *[(t.shape[:-1], popxl.float32)] * 2]


_LAYER_NORM = custom_ops.define(
    "LayerNormDistributed",
    _layer_norm,
    names=("layer_norm_distributed_out", "layer_norm_distributed_mean", "layer_norm_distributed_inv_std"),
    shapes=_norm_and_statistics,
    gradient=True,
    gradient_of=(0, 1, 2),
)


def layer_norm_distributed(
    t: popxl.Tensor,
    w: popxl.Tensor,
    b: popxl.Tensor,
    epsilon: float = 1e-5,
    group: ReplicaGrouping | None = None,
) -> popxl.Tensor:
    """Layer normalisation of (rows, features / members) whose features are sharded over a group.

    Raises
    ------
    popart_internal_exception
        Ranks other than 2, 1 and 1.
    """
    ranks = (t.rank, w.rank, b.rank)
    if ranks != (2, 1, 1):
        raise popart_internal_exception(f"LayerNormDistributedOp takes tensors of ranks 2, 1 and 1, got {ranks}")
    groups = group_attributes(group_of(group))
    return _LAYER_NORM.single(t, w, b, epsilon=float(epsilon), **groups)
