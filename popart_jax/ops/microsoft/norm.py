"""Layer and group normalisation with skip connections, and the embedding that starts a transformer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception
from ..arrays import Array, split_axis
from ..normalization import group_normalise, rms_norm, standardise, wide
from ..registry import Gap, lowers
from . import DOMAIN


def _rms(x: Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    inverse = lax.rsqrt(jnp.square(wide(x)).mean(-1, keepdims=True) + epsilon)
    return wide(x) * inverse, inverse


@lowers("SimplifiedLayerNormalization")
@lowers("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_norm(
    x: Array, scale: Array, /, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    return rms_norm(x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)


def _sum(x: Array, skip: Any, bias: Any) -> Array:
    total = x + jnp.broadcast_to(skip, x.shape)
    return total if bias is None else total + bias


@lowers("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(
    x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None, /, *,
    epsilon: float = 1e-12,
) -> tuple[Any, Any, Any, Array]:  # fmt: skip
    """Outputs: normalised, mean, inverse deviation, the sum itself."""
    total = _sum(x, skip, bias)
    normal, mean, inverse = standardise(wide(total), (-1,), epsilon)
    y = normal * wide(gamma) + (0 if beta is None else wide(beta))
    return y.astype(x.dtype), mean, inverse, total


@lowers("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_norm(
    x: Array, skip: Array, gamma: Array, bias: Array | None = None, /, *, epsilon: float = 1e-12
) -> tuple[Any, jax.Array, jax.Array, Array]:
    total = _sum(x, skip, bias)
    normal, inverse = _rms(total, epsilon)
    return (normal * wide(gamma)).astype(x.dtype), jnp.zeros_like(inverse), inverse, total


def embed_layer_norm(
    ids: Array, segments: Array | None, words: Array, positions: Array, segment_table: Array | None, gamma: Array,
    beta: Array, mask: Array | None, position_ids: Array | None, epsilon: float,
) -> tuple[Any, Array, jax.Array]:  # fmt: skip
    """Sum of the embeddings, its layer norm, and the number of unmasked tokens per row."""
    places = jnp.arange(ids.shape[1])[None] if position_ids is None else jnp.asarray(position_ids)
    total = jnp.asarray(words)[ids] + jnp.asarray(positions)[places]
    total = total if segments is None else total + jnp.asarray(segment_table)[segments]
    normal, _, _ = standardise(wide(total), (-1,), epsilon)
    y = (normal * wide(gamma) + wide(beta)).astype(total.dtype)
    counts = jnp.zeros(ids.shape[:1], jnp.int32) if mask is None else (mask != 0).sum(1).astype(jnp.int32)
    return y, counts, total


@lowers("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    ids: Array, segments: Gap, words: Array, positions: Array, segment_table: Gap, gamma: Array, beta: Array,
    mask: Array | None = None, position_ids: Array | None = None, /, *, epsilon: float = 1e-12,
    mask_index_type: int | None = None,
) -> tuple[Any, Array, jax.Array]:  # fmt: skip
    return embed_layer_norm(ids, segments, words, positions, segment_table, gamma, beta, mask, position_ids, epsilon)


@lowers("GroupNorm", domain=DOMAIN)
def group_norm(
    x: Array, gamma: Array, beta: Array, /, *, activation: str, groups: int, channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Array:  # fmt: skip
    """Group normalisation, optionally followed by SiLU."""
    data = jnp.moveaxis(x, -1, 1) if channels_last else x
    y, _, _ = group_normalise(data, gamma, beta, groups, epsilon)
    y = jax.nn.silu(y) if activation else y
    return (jnp.moveaxis(y, 1, -1) if channels_last else y).astype(x.dtype)


@lowers("SkipGroupNorm", domain=DOMAIN)
def skip_group_norm(
    x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None, /, *, activation: str, groups: int,
    channels_last: int = 1, epsilon: float = 1e-5,
) -> tuple[Array, Array]:  # fmt: skip
    shaped = skip[:, None, None] if skip.ndim == 2 else skip
    total = x + shaped + (0 if bias is None else bias)
    y = group_norm(
        total, gamma, beta, activation=activation, groups=groups, channels_last=channels_last, epsilon=epsilon
    )
    return y, total


@lowers("GatedRMSNorm", domain=DOMAIN)
def gated_rms_norm(x: Array, scale: Array, gate: Array, /, *, activation: str = "silu", epsilon: float = 1e-5) -> Array:
    """RMS norm of each group of `scale`'s size, times the gate."""
    known = {"silu": jax.nn.silu, "swish": jax.nn.silu, "sigmoid": jax.nn.sigmoid}
    if activation not in known:
        raise popart_exception(f"GatedRMSNorm activation {activation!r} is unknown; expected one of {sorted(known)}.")
    normal, _ = _rms(split_axis(x, -1, x.shape[-1] // scale.shape[0]), epsilon)
    return ((normal * wide(scale)).reshape(x.shape) * known[activation](wide(gate))).astype(x.dtype)


@lowers("BranchwiseRMSNorm", domain=DOMAIN)
def branchwise_rms_norm(
    x: Array, scale: Array | None = None, /, *, epsilon: float = 1e-5, num_branches: int = 0
) -> Array:
    """RMS norm of every branch by itself: the last two axes are branch and feature, or one flat axis of both."""
    grouped = split_axis(x, -1, num_branches) if num_branches else x
    normal, _ = _rms(grouped, epsilon)
    if scale is not None:
        normal = normal * wide(scale.reshape(grouped.shape[-2:] if scale.size > grouped.shape[-1] else -1))
    return normal.reshape(x.shape).astype(x.dtype)
