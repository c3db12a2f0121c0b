"""PopXL's forms of gathering, resampling and losses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import Array
from ..graphcore.losses import clamped_nll, pick, reduce_loss
from ..operator import as_graphcore, gradient, operator
from ..registry import lowers
from ..resize import Rule, interpolate, scaled_axes
from . import DOMAIN


def take(x: Any, indices: Any, axis: int) -> Any:
    """Slices by index; indices out of range (negative ones too) give zeros."""
    size = x.shape[axis]
    indices = jnp.asarray(indices)
    inside = indices < size
    if jnp.issubdtype(indices.dtype, jnp.signedinteger):
        inside &= indices >= 0
    places = jnp.where(inside, indices, size).astype(jnp.int32)
    return jnp.take(x, places, axis, mode="fill", fill_value=0)


operator("PopartTiedGather", gradients=gradient("g x1", name="TiedGatherGrad"), popxl=as_graphcore(name="TiedGatherOp"))


@lowers("Gather", domain=DOMAIN)
@lowers("PopartTiedGather", domain=DOMAIN)
def gather(x: Array, indices: Array, /, *, axis: int = 0, group_size: int = 1, zero_oor: int = 0) -> Array:
    x = jnp.asarray(x)
    if group_size == 1:
        return take(x, indices, axis)
    return jax.vmap(partial(take, axis=axis - 1))(x, jnp.asarray(indices))


@lowers("Resize", domain=DOMAIN)
def resize(
    x: Array, /, *, scales: Sequence[float], mode: str, nearest_mode: str, coordinate_transformation_mode: str
) -> Array:
    """PopART's Resize with factors as an attribute, and the gradient that belongs to it."""
    nearest = "floor" if nearest_mode == "pytorch" else nearest_mode
    rule = Rule(mode, coordinate_transformation_mode, nearest, single=True)
    x = jnp.asarray(x)
    return interpolate(x, scaled_axes(x, np.asarray(scales, np.float32)), rule)


def _kept(losses: Any, labels: Any, ignore: int | None) -> tuple[Any, Any]:
    """Losses with those of ignored labels set to 0, and the number of the others, at least 1."""
    if ignore is None:
        return losses, None
    counts = labels != np.asarray(ignore, labels.dtype)
    return jnp.where(counts, losses, jnp.zeros((), losses.dtype)), jnp.maximum(counts.sum(), 1)


@lowers("Nll", domain=DOMAIN)
def nll(
    probs: Array, labels: Array, /, *, reduction: str, inputIsLogProbability: int = 0, ignoreIndex: int | None = None
) -> Array:
    p = pick(probs, labels)
    tiny = 6.104e-05 if probs.dtype == jnp.float16 else 1e-7
    losses = -p if inputIsLogProbability else clamped_nll(p, (tiny, tiny))
    losses, count = _kept(losses, labels, ignoreIndex)
    return reduce_loss(losses, reduction, count)


operator("NlllWithSoftmaxGradDirect", popxl=as_graphcore())


@lowers("NlllWithSoftmaxGradDirect", domain=DOMAIN)
def nll_with_softmax_grad(
    probs: Array, labels: Array, loss_grad: Array, /, *, reduction: str, ignoreIndex: int | None = None
) -> tuple[Array, Array]:
    """The loss of softmax probabilities, and its gradient with respect to the softmax's input.

    The leading axes of `probs` are one axis of samples; the labels are as many, in any shape.
    """
    samples, classes = probs.reshape(-1, probs.shape[-1]), labels.reshape(-1)
    losses = -jnp.log(pick(samples, classes).astype(jnp.float32) + 1e-7).astype(probs.dtype)
    losses, count = _kept(losses, classes, ignoreIndex)
    loss = reduce_loss(losses, reduction, count)
    if loss.ndim:
        loss = loss.reshape(labels.shape)
    grad = loss_grad.reshape(-1) if jnp.ndim(loss_grad) else loss_grad
    dx = softmax_grad_direct(samples, classes, grad, reduction=reduction, ignoreIndex=ignoreIndex)
    return loss, dx.reshape(probs.shape)


operator("SoftmaxGradDirect", popxl=as_graphcore())


@lowers("SoftmaxGradDirect", domain=DOMAIN)
def softmax_grad_direct(
    probs: Array, labels: Array, loss_grad: Array, /, *, reduction: str, ignoreIndex: int | None = None
) -> Array:
    """The gradient of a negative log likelihood with respect to the input of the softmax before it."""
    onehot = (jnp.arange(probs.shape[-1]) == labels[..., None]).astype(jnp.float32)
    dx = probs.astype(jnp.float32) - onehot
    count: Any = labels.size
    if ignoreIndex is not None:
        counts = labels != np.asarray(ignoreIndex, labels.dtype)
        dx, count = jnp.where(counts[..., None], dx, 0), jnp.maximum(counts.sum(), 1)
    if reduction == "Mean":
        dx = dx / count
    grad = jnp.asarray(loss_grad).astype(jnp.float32)
    if grad.ndim and grad.ndim < dx.ndim:
        grad = grad.reshape(*grad.shape, *(1,) * (dx.ndim - grad.ndim)) if grad.size > 1 else grad.reshape(())
    return (dx * grad).astype(probs.dtype)


@lowers("Histogram", domain=DOMAIN)
def histogram(x: Array, /, *, levels: int, absoluteOfInput: int = 0) -> Array:
    """Counts between neighbouring levels; the last bin includes its upper end, values outside are not counted."""
    flat = (jnp.abs(x) if absoluteOfInput else x).reshape(-1).astype(jnp.float32)
    edges = jnp.asarray(levels, jnp.float32)
    upper = jnp.append(edges[1:-1], jnp.nextafter(edges[-1], jnp.float32(jnp.inf)))
    inside = (flat[:, None] >= edges[:-1]) & (flat[:, None] < upper)
    return inside.sum(0).astype(jnp.uint32)
