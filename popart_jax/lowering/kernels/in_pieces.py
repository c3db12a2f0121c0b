"""A part of a network that takes the rows of a batch a few at a time; `passes.in_pieces` inserts it."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
from jax import lax

from ...ops.arrays import Array
from ...ops.operator import operator
from ...ops.registry import Subgraph, lowers
from . import DOMAIN

operator("InPieces")


@lowers("InPieces", domain=DOMAIN)
def in_pieces(x: Array, /, *, body: Subgraph, size: int) -> jax.Array:
    """The body's result for `size` rows of x at a time; the last piece may repeat rows of the one before."""
    rows = x.shape[0]
    size = min(size, rows)
    count, rest = -(-rows // size), rows % size

    def piece(i: jax.Array) -> jax.Array:
        (result,) = body(lax.dynamic_slice_in_dim(x, jnp.minimum(i * size, rows - size), size))
        return result

    found = cast("jax.Array", lax.map(piece, jnp.arange(count)))
    joined = found.reshape(count * size, *found.shape[2:])
    return joined if not rest else jnp.concatenate([joined[: rows - rest], joined[-rest:]])
