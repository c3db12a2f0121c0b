"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import popxl
from ...errors import popart_exception
from ...ops.arrays import Array, settled
from ...popxl import custom_ops, ops


def _rotate(t: Array, sin: Array, cos: Array, /, *, rotary_dim: int) -> Array:
    return _turned(t, sin, cos, rotary_dim)


def _turn_back(dy: Array, sin: Array, cos: Array, /, *, rotary_dim: int) -> Array:
    return _turned(dy, -sin, cos, rotary_dim)


def _turned(t: Any, sin: Any, cos: Any, rotary_dim: int) -> Any:
    """Pairs (even, odd) of the leading elements become even*cos - odd*sin and odd*cos + even*sin."""
    turned, rest = t[..., :rotary_dim], t[..., rotary_dim:]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    sin, cos = (table.astype(t.dtype)[:, :, None, :] for table in (sin, cos))
    first = settled(even * cos) - settled(odd * sin)
    second = settled(odd * cos) + settled(even * sin)
    return jnp.concatenate([jnp.stack([first, second], axis=-1).reshape(turned.shape), rest], axis=-1)


_ROTARY_POS_EMBED = custom_ops.define(
    "RotaryPosEmbed",
    _rotate,
    names=("rotary_pos_embed_out",),
    gradient=_turn_back,
    reads=("i1", "i2"),
)


def rotary_pos_embed(
    t: popxl.Tensor, sin: popxl.Tensor, cos: popxl.Tensor, rotary_dim: int | None = None
) -> popxl.Tensor:
    """Rotate consecutive pairs of the last axis by the angles of the tables.

    Parameters
    ----------
    t : Tensor (batch, sequence, heads, size)
    sin, cos : Tensor (sequence, rotary_dim/2) or (1 or batch, sequence, rotary_dim/2)
    rotary_dim : int, optional
        Leading elements of the last axis that are rotated; default all.

    Raises
    ------
    popart_exception
        `t` has another rank than 4, an odd `rotary_dim`, or tables that do not fit.
    """
    size = int(t.shape[-1] if rotary_dim is None else rotary_dim)
    if t.rank != 4:
        raise popart_exception(f"RotaryPosEmbedOp takes a tensor of rank 4, got shape {t.shape}")
    if size % 2 or not 0 < size <= t.shape[-1]:
        raise popart_exception(f"RotaryPosEmbedOp: rotary_dim must be even and at most {t.shape[-1]}, got {size}")
    sin, cos = (ops.reshape(table, (1, *table.shape)) if table.rank == 2 else table for table in (sin, cos))
    for table in (sin, cos):
        if table.rank != 3 or table.shape[0] not in (1, t.shape[0]) or table.shape[1:] != (t.shape[1], size // 2):
            raise popart_exception(f"RotaryPosEmbedOp: tables of shape {table.shape} do not fit {t.shape} and {size}")
    return _ROTARY_POS_EMBED.single(t, sin, cos, rotary_dim=size)


def trig_tables(
    seq_len: int, rotary_dim: int, base: int = 10000, np_dtype: Any = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """sin and cos of position * base^(-2i/rotary_dim), each (seq_len, rotary_dim/2), computed in `np_dtype`."""
    theta = base ** (-np.arange(0, rotary_dim, 2, dtype=np_dtype) / rotary_dim)
    phi = np.outer(np.arange(seq_len, dtype=np_dtype), theta)
    return np.sin(phi), np.cos(phi)


def trig_table_constants(
    seq_len: int, rotary_dim: int, base: int = 10000, dtype: popxl.dtype = popxl.float32
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """The tables as constants of the current graph."""
    sin, cos = trig_tables(seq_len, rotary_dim, base, dtype.as_numpy())
    return popxl.constant(sin, dtype, "sin"), popxl.constant(cos, dtype, "cos")
