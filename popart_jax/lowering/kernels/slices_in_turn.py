"""Slices declared not to overlap (`noOverlap`): where they do, the gradient is that of the last slice, not the sum.

Source: PopART writes the gradients of such slices one over the other, in the order of the slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...ops.arrays import Array
from ...ops.graphcore.dynamic import put, take
from ...ops.registry import lowers
from ...ops.two_way import two_way
from . import DOMAIN

Places = tuple[int, ...]


@lowers("SliceInTurn", domain=DOMAIN)
def slice_in_turn(
    x: Array, offset: Array, destination: Array | None = None, written: Array | None = None, /, *,
    axes: Sequence[int], sizes: Sequence[int], noOverlap: int = 1,
) -> tuple[Any, Array, Array | None]:  # fmt: skip
    """The slice; then, for the next slice of the same tensor, that tensor and a carrier of the positions written."""
    written = jnp.zeros_like(x) if written is None else written
    part, x, written = _in_turn(x, written, offset, tuple(axes), tuple(sizes))
    part = part if destination is None else part.reshape(destination.shape).astype(destination.dtype)
    return part, x, written


@partial(two_way, nondiff_argnums=(3, 4))
def _in_turn(x: jax.Array, written: jax.Array, offset: jax.Array, axes: Places, sizes: Places) -> Any:
    return take(x, offset, axes, sizes), x, written


def _forward(x: jax.Array, written: jax.Array, offset: jax.Array, axes: Places, sizes: Places) -> Any:
    return _in_turn(x, written, offset, axes, sizes), offset


def _backward(axes: Places, sizes: Places, offset: jax.Array, gradients: Any) -> Any:
    """Gradients of later slices have ones in `written` at the positions they wrote; their values stay there."""
    of_part, of_x, written = gradients
    kept = take(written, offset, axes, sizes) > 0
    of_part = jnp.where(kept, take(of_x, offset, axes, sizes), of_part)
    return put(of_x, offset, of_part, axes, sizes), put(written, offset, jnp.ones_like(of_part), axes, sizes), None


_in_turn.defvjp(_forward, _backward)
