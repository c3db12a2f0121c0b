"""GroupNormalization with statistics, BatchNormalization with unbiased variance, NormalizeImage."""

from __future__ import annotations

from math import prod
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import popart_exception
from ..arrays import Array
from ..builder_methods import builder_method
from ..normalization import group_normalise, popart_batch_norm, wide
from ..operator import operator
from ..registry import Options, OutputCount, lowers
from .losses import DOMAIN

builder_method("GroupNormalization", "groupnormalization(args, num_groups:int, epsilon:float=1e-05) -> 3")


@lowers("GroupNormalization", domain=DOMAIN)
def group_normalization(
    x: Array, gamma: Array, beta: Array, /, *, num_groups: int, epsilon: float = 1e-5, options: Options
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Also returns mean and inverse deviation, one value per sample and group, flat."""
    order = _strided_order(x.shape[1], num_groups) if options.strided_group_norm else None
    operands = (x, gamma, beta) if order is None else (x[:, order], gamma[order], beta[order])
    y, mean, inverse = group_normalise(*operands, num_groups, epsilon)
    y = y if order is None else y[:, np.argsort(order)]
    return y.astype(x.dtype), mean.reshape(-1).astype(x.dtype), inverse.reshape(-1).astype(x.dtype)


def _strided_order(channels: int, groups: int) -> np.ndarray:
    """Order of the channels in which those of the same group, c % groups, are contiguous."""
    if channels % groups:
        raise popart_exception(f"{channels} channels can't be divided into {groups} groups.")
    return np.arange(channels).reshape(-1, groups).T.reshape(-1)


builder_method(
    "BatchNormalization",
    "batchnormalization(args, num_outputs:int, epsilon:float=1e-05, momentum:float=0.9) -> n<=5",
)


@lowers("BatchNormalization", domain=DOMAIN)
def batch_normalization(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, /, *, epsilon: float = 1e-5, momentum: float = 0.9,
    spatial: int = 1, n_outputs: OutputCount = 5,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """Reported and running variance are unbiased; the data are normalised with the biased one."""
    results = popart_batch_norm(
        x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial, n_outputs=n_outputs
    )
    if n_outputs < 2:
        return results
    y, running_mean, _, batch_mean, batch_var = cast("tuple[jax.Array, ...]", results)
    n = x.shape[0] * prod(x.shape[2:]) if spatial else x.shape[0]
    unbiased = (wide(batch_var) + epsilon) * (n / max(n - 1, 1)) - epsilon
    old = lax.stop_gradient(wide(var))
    running_var = old * momentum + unbiased * (1 - momentum)
    return y, running_mean, running_var.astype(var.dtype), batch_mean, unbiased.astype(var.dtype)


operator("NormalizeImage", gradients=())
builder_method("NormalizeImage", "normalize_image(args, scale:float=1.0)")


@lowers("NormalizeImage", domain=DOMAIN)
def normalize_image(image: Array, offsets: Array, scales: Array, /, *, scale: float = 1.0) -> jax.Array:
    """(image * scale - offsets) * scales over the three channels, and a fourth channel of zeros; no gradient."""
    if image.ndim < 2 or image.shape[-1] != 3:
        raise popart_exception("requires the inner dimension to be 3.")
    if abs(scale) < np.finfo(np.float32).eps:
        raise popart_exception("[normalizeImageOpCreator] scale should be greater than 0.")
    dtype = jnp.float16 if image.dtype == jnp.uint8 else image.dtype
    y = (image.astype(dtype) * jnp.asarray(scale, dtype) - offsets) * scales
    return lax.stop_gradient(jnp.pad(y.astype(dtype), ((0, 0),) * (image.ndim - 1) + ((0, 1),)))
