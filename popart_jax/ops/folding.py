"""Reductions over dimensions, and broadcasts, whose gradients are reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from .arrays import highest, lowest
from .kernels import Computation


@Computation
def total(x: Any, axes: Sequence[int]) -> Any:
    """Sum over axes, which are kept."""
    return jnp.sum(x, axes, keepdims=True, dtype=x.dtype)


@Computation
def largest(x: Any, axes: Sequence[int]) -> Any:
    """Largest element over axes, which are kept; of no elements the lowest number."""
    return jnp.max(x, axes, keepdims=True, initial=lowest(x.dtype))


@Computation
def smallest(x: Any, axes: Sequence[int]) -> Any:
    """Smallest element over axes, which are kept; of no elements the highest number."""
    return jnp.min(x, axes, keepdims=True, initial=highest(x.dtype))


@Computation
def spread(x: Any, other: Sequence[Any]) -> Any:
    """One of two operands that are broadcast; `other` is the other one's shape, of the same rank."""
    del other
    return x
