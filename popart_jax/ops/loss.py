"""Losses of ONNX: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._compat.jax import Tracer
from ..errors import popart_exception
from .arrays import Array
from .operator import operator
from .registry import OutputCount, lowers
from .softmax import log_softmax


def _reduce(values: jax.Array, weights: jax.Array, reduction: str) -> jax.Array:
    if reduction == "none":
        return values
    if reduction not in ("mean", "sum"):
        raise popart_exception(f"Unknown reduction {reduction!r}; expected none, sum or mean.")
    total = values.sum()
    return total if reduction == "sum" else total / weights.sum()


def weighted_nll(log_prob: Array, target: Any, weight: Any, reduction: str, ignore_index: int | None) -> jax.Array:
    """-weight[target] * log_prob[:, target], classes along axis 1; ignored targets weigh nothing."""
    target = jnp.asarray(target)
    kept = jnp.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    index = jnp.where(kept, target, 0)
    if not isinstance(index, Tracer) and index.size and not 0 <= index.min() <= index.max() < log_prob.shape[1]:
        raise popart_exception(
            f"target out of range: expected [0, {log_prob.shape[1] - 1}], got [{index.min()}, {index.max()}]"
        )
    picked = jnp.take_along_axis(log_prob, jnp.expand_dims(index, 1), axis=1).squeeze(1)
    weights = kept.astype(log_prob.dtype) if weight is None else jnp.where(kept, jnp.asarray(weight)[index], 0)
    return _reduce(jnp.where(kept, -picked, 0) * weights, weights, reduction)


operator("NegativeLogLikelihoodLoss", ranks="input 2+ weight 1", neutral="ignore_index")


@lowers("NegativeLogLikelihoodLoss", 12, 13, 22)
def negative_log_likelihood_loss(
    x: Array, target: Array, weight: Array | None = None, /, *, ignore_index: int | None = None, reduction: str = "mean"
) -> jax.Array:
    return weighted_nll(x, target, weight, reduction, ignore_index).astype(x.dtype)


operator("SoftmaxCrossEntropyLoss", ranks="scores 2+ weights 1", neutral="ignore_index")


@lowers("SoftmaxCrossEntropyLoss", 12, 13)
def softmax_cross_entropy_loss(
    scores: Array, labels: Array, weights: Array | None = None, /, *, ignore_index: int | None = None,
    reduction: str = "mean", n_outputs: OutputCount = 1,
) -> Array | tuple[Array, ...]:  # fmt: skip
    log_prob = log_softmax(scores, 1)
    loss = weighted_nll(log_prob, labels, weights, reduction, ignore_index).astype(scores.dtype)
    return (loss, log_prob) if n_outputs > 1 else loss
