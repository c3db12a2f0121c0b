"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import popxl
from ...popxl import custom_ops
from .simple import DOMAIN


def _rotate(t, sin, cos, /, *, rotary_dim):
    turned, rest = t[..., :rotary_dim], t[..., rotary_dim:]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    sin, cos = sin.astype(t.dtype), cos.astype(t.dtype)
    pairs = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return jnp.concatenate([pairs.reshape(turned.shape), rest], axis=-1)


_ROTARY_POS_EMBED = custom_ops.define(
    "RotaryPosEmbed", _rotate, domain=DOMAIN, names=("rotary_pos_embed_out",), gradient=True, reads=("i0", "i1", "i2")
)


def rotary_pos_embed(
    t: popxl.Tensor, sin: popxl.Tensor, cos: popxl.Tensor, rotary_dim: int | None = None
) -> popxl.Tensor:
    """Rotate consecutive pairs of the last axis by the angles of the tables.

    Parameters
    ----------
    t : Tensor (batch, heads, sequence, size)
    sin, cos : Tensor (sequence, rotary_dim/2), a leading 1 allowed
    rotary_dim : int, optional
        Leading elements of the last axis that are rotated; default all.

    Raises
    ------
    ValueError
        `t` has another rank than 4.
    """
    if t.rank != 4:
        raise ValueError(f"rotary_pos_embed takes a tensor of rank 4, got shape {t.shape}")
    return _ROTARY_POS_EMBED.single(t, sin, cos, rotary_dim=int(rotary_dim or t.shape[-1]))


def trig_tables(
    seq_len: int, rotary_dim: int, base: int = 10000, np_dtype: Any = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """sin and cos of position / base^(2i/rotary_dim), each (seq_len, rotary_dim/2)."""
    inverse = base ** -(np.arange(0, rotary_dim, 2) / rotary_dim)
    angles = np.outer(np.arange(seq_len), inverse)
    return np.sin(angles).astype(np_dtype), np.cos(angles).astype(np_dtype)


def trig_table_constants(
    seq_len: int, rotary_dim: int, base: int = 10000, dtype: popxl.dtype = popxl.float32
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """The tables as constants of the current graph."""
    sin, cos = trig_tables(seq_len, rotary_dim, base)
    return popxl.constant(sin, dtype, "sin"), popxl.constant(cos, dtype, "cos")
