"""Group normalisation in the shape of the data: sums per channel first, then over the channels of a group.

With the data reshaped to (N, groups, rest), XLA:CPU computes the index of every element by divisions inside each fused
loop (jaxlib 0.10). Training 8 x 64 x 56 x 56 in 8 groups takes 10 ms in this form, 33 to 90 in the other. Gradients of
scale and bias, and the means that the data's gradient needs, are of the same two sums per channel: 0.7 of the time that
sums of each take.

Rows of channels, as the layer norms of PopART's transformers have them, are calls that XLA keeps. Left to itself it
computes the residual stream again from the first layer on in the kernels of each later one: four layers in half
precision are prepared in 0.4 of the time, and a step takes 0.5 (`python -m benchmarks.half_precision`).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ..._compat.jax import computed_once, one_kernel
from ...ops.arrays import wide
from ...ops.normalization import check_channels, group_normalise, per_channel
from ...ops.two_way import two_way

Normalised = tuple[jax.Array, jax.Array, jax.Array]
Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


@group_normalise.form_for("cpu")
def by_channel(x: jax.Array, scale: jax.Array, bias: jax.Array, groups: int, epsilon: float) -> Normalised:
    """See `ops.normalization.group_normalise`."""
    check_channels(x, groups)
    if not x.size or not scale.shape == bias.shape == x.shape[1:2]:
        return group_normalise.plain(x, scale, bias, groups, epsilon)
    return _normalised(wide(x), wide(scale), wide(bias), groups, epsilon)


def _forward(x: jax.Array, scale: jax.Array, bias: jax.Array, groups: int, epsilon: float) -> tuple[Normalised, Saved]:
    compute = partial(_results, groups=groups, epsilon=epsilon)
    y, mean, inverse = one_kernel(compute, x, scale, bias) if x.ndim == 2 else compute(x, scale, bias)
    return (y, mean, inverse), (x, scale, mean, inverse)


def _results(x: jax.Array, scale: jax.Array, bias: jax.Array, groups: int, epsilon: float) -> Normalised:
    mean = _mean(_sums(x), x, groups)
    centred = x - _spread(mean, x)
    inverse = lax.rsqrt(_mean(_sums(jnp.square(centred)), x, groups) + epsilon)
    factor = _each(inverse, x) * scale
    return centred * _as_data(factor, x) + per_channel(bias, x.ndim), mean, inverse


@partial(two_way, nondiff_argnums=(3, 4))
def _normalised(x: jax.Array, scale: jax.Array, bias: jax.Array, groups: int, epsilon: float) -> Normalised:
    return _forward(x, scale, bias, groups, epsilon)[0]


def _backward(groups: int, epsilon: float, saved: Saved, cotangents: Normalised) -> Normalised:
    compute = partial(_gradients, groups)
    return one_kernel(compute, saved, cotangents) if saved[0].ndim == 2 else compute(saved, cotangents)


def _gradients(groups: int, saved: Saved, cotangents: Normalised) -> Normalised:
    """Gradients of data, scale and bias."""
    x, scale, mean, inverse = saved
    g, of_mean, of_inverse = cotangents
    centred, inverses, count = x - _spread(mean, x), _each(inverse, x), x.size // mean.size
    total, product = _sums(g), _sums(g * centred) * inverses
    total = computed_once(total) if x.ndim > 2 else total  # or XLA reads all data again for the sum over images
    level = _mean(total * scale, x, groups) * inverse - of_mean / count
    along = _mean(product * scale, x, groups) * inverse + of_inverse * jnp.square(inverse) / count
    standard = centred * _as_data(inverses, x)
    of_x = g * _as_data(inverses * scale, x) - _spread(level, x) - standard * _spread(along, x)
    return of_x, product.sum(0), total.sum(0)


_normalised.defvjp(_forward, _backward)


def _sums(x: jax.Array) -> jax.Array:
    """Sums of each channel, (N, C)."""
    return x.sum(tuple(range(2, x.ndim)))


def _mean(sums: jax.Array, x: jax.Array, groups: int) -> jax.Array:
    """Means of the groups, (N, groups), from the sums of the channels."""
    return sums.reshape(x.shape[0], groups, -1).sum(2) * (x.shape[0] * groups / x.size)


def _each(values: jax.Array, x: jax.Array) -> jax.Array:
    """Values per group, repeated for each channel."""
    return jnp.repeat(values, x.shape[1] // values.shape[1], 1)


def _as_data(values: jax.Array, x: jax.Array) -> jax.Array:
    """Values per channel, (N, C), to broadcast against the data."""
    return values.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def _spread(values: jax.Array, x: jax.Array) -> jax.Array:
    """Values per group, to broadcast against the data."""
    return _as_data(_each(values, x), x)
