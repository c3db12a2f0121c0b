"""Group normalisation in the shape of the data: sums per channel first, then over the channels of a group.

With the data reshaped to (N, groups, rest), XLA:CPU computes the index of every element by divisions inside each fused
loop (jaxlib 0.10). Training 8 x 64 x 56 x 56 in 8 groups takes 10 ms in this form, 33 to 90 in the other.

Rows of channels, as the layer norms of PopART's transformers have them, are calls that XLA keeps. Left to itself it
computes the residual stream again from the first layer on in the kernels of each later one: four layers in half
precision are prepared in 0.4 of the time, and a step takes 0.5 (`python -m benchmarks.half_precision`).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ..._compat.jax import one_kernel
from ...ops.arrays import wide
from ...ops.normalization import check_channels, group_standardise
from ...ops.two_way import two_way

Standardised = tuple[jax.Array, jax.Array, jax.Array]
Saved = tuple[jax.Array, jax.Array, jax.Array]


@group_standardise.form_for("cpu")
def by_channel(x: jax.Array, groups: int, epsilon: float) -> Standardised:
    """See `ops.normalization.group_standardise`."""
    check_channels(x, groups)
    return _standardised(wide(x), groups, epsilon) if x.size else group_standardise.plain(x, groups, epsilon)


def _forward(x: jax.Array, groups: int, epsilon: float) -> tuple[Standardised, Saved]:
    compute = partial(_results, groups=groups, epsilon=epsilon)
    normal, mean, inverse = one_kernel(compute, x) if x.ndim == 2 else compute(x)
    return (normal, mean, inverse), (x, mean, inverse)


def _results(x: jax.Array, groups: int, epsilon: float) -> Standardised:
    mean = _mean(x, groups)
    inverse = lax.rsqrt(_mean(jnp.square(x - _spread(mean, x)), groups) + epsilon)
    return (x - _spread(mean, x)) * _spread(inverse, x), mean, inverse


@partial(two_way, nondiff_argnums=(1, 2))
def _standardised(x: jax.Array, groups: int, epsilon: float) -> Standardised:
    return _forward(x, groups, epsilon)[0]


def _backward(groups: int, epsilon: float, saved: Saved, cotangents: Standardised) -> tuple[jax.Array]:
    compute = partial(_gradient, groups)
    return (one_kernel(compute, saved, cotangents) if saved[0].ndim == 2 else compute(saved, cotangents),)


def _gradient(groups: int, saved: Saved, cotangents: Standardised) -> jax.Array:
    x, mean, inverse = saved
    g, of_mean, of_inverse = cotangents
    normal = (x - _spread(mean, x)) * _spread(inverse, x)
    count = x.size // mean.size
    level = _mean(g, groups) * inverse - of_mean / count
    along = _mean(g * normal, groups) * inverse + of_inverse * jnp.square(inverse) / count
    return g * _spread(inverse, x) - _spread(level, x) - normal * _spread(along, x)


_standardised.defvjp(_forward, _backward)


def _mean(x: jax.Array, groups: int) -> jax.Array:
    """Means of the groups, (N, groups)."""
    by_channel = x.sum(tuple(range(2, x.ndim)))
    return by_channel.reshape(x.shape[0], groups, -1).sum(2) * (x.shape[0] * groups / x.size)


def _spread(values: jax.Array, x: jax.Array) -> jax.Array:
    """Values per group repeated for each channel, to broadcast against the data."""
    each = jnp.repeat(values, x.shape[1] // values.shape[1], 1)
    return each.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))
