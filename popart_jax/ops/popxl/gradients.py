"""Gradients that are computed from a forward output alone; operands are (output gradient, output)."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..arrays import Array
from ..registry import lowers
from . import DOMAIN


@lowers("ReluGrad", domain=DOMAIN)
def relu_grad(dy: Array, y: Array, /) -> Array:
    return jnp.where(y > 0, dy, jnp.zeros((), dy.dtype))


@lowers("TanhGrad", domain=DOMAIN)
def tanh_grad(dy: Array, y: Array, /) -> Array:
    return dy * (1 - y * y)


@lowers("ExpGrad", domain=DOMAIN)
def exp_grad(dy: Array, y: Array, /) -> Array:
    return dy * y


@lowers("SqrtGrad", domain=DOMAIN)
def sqrt_grad(dy: Array, y: Array, /) -> Array:
    return dy / (2 * y)


@lowers("SoftmaxGrad", domain=DOMAIN)
def softmax_grad(dy: Array, y: Array, /, *, axis: int) -> Array:
    product = dy * y
    return product - y * jnp.sum(product, axis, keepdims=True)


@lowers("ClipGrad", domain=DOMAIN)
def clip_grad(dy: Array, y: Array, /, *, min: float, max: float) -> Array:
    return jnp.where((y > min) & (y < max), dy, jnp.zeros((), dy.dtype))


@lowers("MaxArgGrad", domain=DOMAIN)
def max_arg_grad(dy: Array, x: Array, y: Array, /) -> Array:
    """The gradient in full for every operand that attains the maximum, summed over the axes it was broadcast along."""
    part = jnp.where(x == y, dy, jnp.zeros((), dy.dtype))
    lead = part.ndim - x.ndim
    over = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(x.shape) if n != part.shape[lead + i])
    return part.sum(over, keepdims=True).reshape(x.shape)


@lowers("ReduceLogSumGrad", domain=DOMAIN)
def reduce_log_sum_grad(
    dy: Array, y: Array, /, *, x_shape: Sequence[int], axes: Sequence[int] = (), keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Array:  # fmt: skip
    over = tuple(axes) or (() if noop_with_empty_axes else tuple(range(len(x_shape))))
    part = dy / jnp.exp(y)
    return jnp.broadcast_to(part if keepdims else jnp.expand_dims(part, over), x_shape)


@lowers("ReduceMedianGrad", domain=DOMAIN)
def reduce_median_grad(
    dy: Array, index: Array, /, *, x_shape: Sequence[int], axes: Sequence[int] | None = None, keepdims: int = 1
) -> Array:
    """The gradient goes to the element that was chosen; the index counts in the reduced axes, flattened."""
    rank = len(x_shape)
    over = list(range(rank)) if axes is None else sorted(a % rank for a in axes)
    kept = [d for d in range(rank) if d not in over]
    lead = tuple(x_shape[d] for d in kept)
    n = int(np.prod([x_shape[d] for d in over], dtype=np.int64))
    hot = jnp.arange(n) == index.reshape(*lead, 1)
    spread = jnp.where(hot, dy.reshape(*lead, 1), jnp.zeros((), dy.dtype))
    order = kept + over
    return jnp.transpose(spread.reshape([x_shape[d] for d in order]), np.argsort(order).tolist())


@lowers("TopKGrad", domain=DOMAIN)
def topk_grad(
    dy: Array, index: Array, /, *, x_shape: Sequence[int], axis: int, k: int = 0, largest: int = 1, sorted: int = 1
) -> Array:
    moved, places = jnp.moveaxis(dy, axis, -1), jnp.moveaxis(index, axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    rows = jnp.arange(flat.shape[0])[:, None]
    lead = [d for i, d in enumerate(x_shape) if i != axis]
    out = jnp.zeros((flat.shape[0], x_shape[axis]), dy.dtype).at[rows, places.reshape(flat.shape)].set(flat)
    return jnp.moveaxis(out.reshape(*lead, x_shape[axis]), -1, axis)
