"""Shared parts of classifiers and regressors: post transforms and class labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..arrays import Array, as_index, device_dtype
from ..later import named_by

ML = "ai.onnx.ml"


def softmax_zero(x: Array) -> Array:
    """Softmax that keeps scores of zero at (almost) zero."""
    top = jnp.max(x, -1, keepdims=True)
    parts = jnp.where(jnp.abs(x) > 1e-7, jnp.exp(x - top), x * jnp.exp(-top))
    total = jnp.sum(parts, -1, keepdims=True)
    return jnp.where(total == 0, jnp.full_like(parts, 0.5), parts / jnp.where(total == 0, jnp.ones_like(total), total))


def probit(x: Array) -> Array:
    """Inverse of the normal distribution function."""
    return jnp.sqrt(jnp.asarray(2, x.dtype)) * jax.scipy.special.erfinv(2 * x - 1)


_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda x: x,
    "LOGISTIC": jax.nn.sigmoid,
    "SOFTMAX": jax.nn.softmax,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def post(x: Array, transform: str) -> Array:
    """Apply a `post_transform` to rows of scores."""
    if transform not in _TRANSFORMS:
        raise popart_exception(f"post_transform {transform!r} is none of {sorted(_TRANSFORMS)}")
    return _TRANSFORMS[transform](x)


def floating(x: Array) -> Array:
    """Features in floating point: doubles stay, everything else becomes FLOAT."""
    return x if x.dtype in (np.float64, np.float32) else jnp.asarray(x).astype(jnp.float32)


def named(index: Array, labels: Sequence[Any]) -> Any:
    """Class labels by position."""
    if labels and isinstance(labels[0], str):
        return named_by(labels, index)
    return (
        jnp.asarray(np.asarray(labels, np.int64)).astype(device_dtype(np.int64))[index] if labels else as_index(index)
    )
