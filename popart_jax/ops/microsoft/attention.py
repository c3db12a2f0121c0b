"""Attention of ONNX Runtime: Attention, MultiHeadAttention, RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..arrays import Array
from ..attention import masked_softmax, merge_heads, rotary, split_heads
from ..registry import OutputCount, lowers
from . import DOMAIN

_FILTER = -10000.0


def key_mask(mask: Any, batch: int, queries: int, keys: int, filter_value: float, dtype: Any) -> Any:
    """Additive mask (B or 1, 1, queries or 1, keys) of the forms that mask_index takes; else popart_exception."""
    if mask is None:
        return None
    mask, places = jnp.asarray(mask), jnp.arange(keys)
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch, 3 * batch + 2):
        ends = mask[:batch, None]
        starts = mask[batch:, None] if mask.shape[0] == 2 * batch else 0
        allowed = ((places < ends) & (places >= starts))[:, None, None]
    elif mask.ndim == 2 and mask.shape[1] == keys:
        allowed = (mask != 0)[:, None, None]
    elif mask.ndim == 3:
        allowed = (mask != 0)[:, None, :, :keys]
    elif mask.ndim == 4:
        allowed = (mask != 0)[:, :, keys - queries : keys, :keys]
    else:
        raise popart_exception(
            f"Attention mask of shape {list(mask.shape)} for {batch} x {queries} queries, {keys} keys."
        )
    return jnp.where(allowed, 0, jnp.asarray(filter_value, dtype))


def causal_mask(queries: int, keys: int, dtype: Any) -> jax.Array:
    """-inf above the diagonal that ends in the last key."""
    seen = jnp.arange(keys) <= jnp.arange(queries)[:, None] + (keys - queries)
    return jnp.where(seen, jnp.zeros((), dtype), jnp.asarray(-jnp.inf, dtype))


def attend(q: Array, k: Array, v: Array, bias: Any, scale: float | None) -> tuple[jax.Array, jax.Array]:
    """Softmax attention of (B, H, S, D) tensors, and its raw scores."""
    factor = jnp.asarray(scale or 1 / np.sqrt(q.shape[-1]), q.dtype)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * factor
    precise = scores.astype(jnp.promote_types(q.dtype, jnp.float32))
    probs = masked_softmax(precise, None if bias is None else jnp.broadcast_to(bias, precise.shape))
    return probs.astype(q.dtype) @ v, scores


def _total(*parts: Any) -> Any:
    given = [p for p in parts if p is not None]
    return sum(given[1:], start=given[0]) if given else None


def with_past(past: Any, new: jax.Array) -> jax.Array:
    """Cached keys or values followed by the new ones."""
    return new if past is None else jnp.concatenate([past, new], axis=2)


def self_attention(
    qkv: Array, heads: int, sizes: Sequence[int], mask: Array | None, past: Array | None, bias: Array | None,
    unidirectional: int, filter_value: float, scale: float | None,
) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
    """Attention of the projected input (B, S, Dq + Dk + Dv); returns output and present (2, B, H, T, D)."""
    q, k, v = (split_heads(p, heads) for p in jnp.split(qkv, np.cumsum(sizes)[:2].tolist(), axis=-1))
    k, v = with_past(None if past is None else past[0], k), with_past(None if past is None else past[1], v)
    y, _ = _masked(q, k, v, mask, bias, unidirectional, filter_value, scale)
    return merge_heads(y), (jnp.stack([k, v]) if k.shape == v.shape else None)


def _masked(
    q: Array, k: Array, v: Array, mask: Any, bias: Any, unidirectional: int, filter_value: float, scale: float | None
) -> tuple[jax.Array, jax.Array]:
    """`attend` with the masks of the keys and of later positions."""
    shape = (q.shape[0], q.shape[2], k.shape[2])
    causal = causal_mask(*shape[1:], q.dtype) if unidirectional else None
    return attend(q, k, v, _total(key_mask(mask, *shape, filter_value, q.dtype), causal, bias), scale)


def cached(
    q: Array, k: Array, v: Array, past: Any, length: Array | None, mask: Array | None, bias: Array | None,
    filter_value: float, scale: float | None, causal: int,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Attention over a buffer of fixed size whose first `length` entries are filled; the new ones go behind them.

    Returns output, both buffers, and the raw scores.
    """
    start = jnp.asarray(length).reshape(-1)[0]
    keys, values = (
        jax.lax.dynamic_update_slice_in_dim(jnp.asarray(buffer), new.astype(buffer.dtype), start, axis=2)
        for buffer, new in zip(past, (k, v), strict=True)
    )
    room, steps = keys.shape[2], q.shape[2]
    last = start + (jnp.arange(steps) if causal else steps - 1)
    inside = jnp.arange(room) <= jnp.reshape(last, (-1, 1))
    total = _total(
        jnp.where(inside, jnp.zeros((), q.dtype), jnp.asarray(-jnp.inf, q.dtype)),
        key_mask(_wide_mask(mask, room), q.shape[0], steps, room, filter_value, q.dtype),
        None if bias is None else _wide_mask(bias, room),
    )
    y, scores = attend(q, keys, values, total, scale)
    return y, keys, values, scores


def _wide_mask(mask: Any, room: int) -> Any:
    """A mask or bias over the keys so far, with zeros for the empty rest of the buffer."""
    if mask is None or mask.ndim < 2:
        return mask
    missing = room - mask.shape[-1]
    return jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)]) if missing > 0 else mask


@lowers("Attention", domain=DOMAIN)
def attention(
    x: Array, weights: Array, bias: Array | None = None, mask_index: Array | None = None, past: Array | None = None,
    attention_bias: Array | None = None, past_sequence_length: Array | None = None, /, *, num_heads: int,
    do_rotary: int = 0, mask_filter_value: float = _FILTER, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] = (), rotary_embedding_dim: int = 0, scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Array | None, ...]:  # fmt: skip
    if do_rotary:
        raise popart_exception(
            "Attention with do_rotary is not supported.\n  fix: export RotaryEmbedding and MultiHeadAttention instead."
        )
    sizes = qkv_hidden_sizes or (weights.shape[1] // 3,) * 3
    qkv = x @ weights + (0 if bias is None else bias)
    if past_present_share_buffer:
        q, k, v = (split_heads(p, num_heads) for p in jnp.split(qkv, np.cumsum(sizes)[:2].tolist(), axis=-1))
        y, keys, values, _ = cached(
            q, k, v, past, past_sequence_length, mask_index, attention_bias, mask_filter_value, scale, unidirectional
        )
        return merge_heads(y), jnp.stack([keys, values])
    return self_attention(
        qkv, num_heads, sizes, mask_index, past, attention_bias, unidirectional, mask_filter_value, scale
    )


def _unpack(query: Any, key: Any, value: Any, heads: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Query, key and value as (B, H, S, D), from separate or packed tensors."""
    if query.ndim == 5:
        return tuple(query[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
    if key is not None and key.ndim == 5:
        k, v = (key[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2))
        return split_heads(query, heads), k, v
    return split_heads(query, heads), split_heads(key, heads), split_heads(value, heads)


@lowers("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    query: Array, key: Array | None = None, value: Array | None = None, bias: Array | None = None,
    key_padding_mask: Array | None = None, attention_bias: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None, /, *, num_heads: int, mask_filter_value: float = _FILTER,
    scale: float | None = None, unidirectional: int = 0, n_outputs: OutputCount = 1,
) -> tuple[jax.Array, ...]:  # fmt: skip
    if cache_indirection is not None:
        raise popart_exception(
            "MultiHeadAttention with cache_indirection is not supported.\n"
            "  fix: export the decoder without beam search."
        )
    if bias is not None:
        query, key, value = _add_bias(query, key, value, bias, num_heads)
    q, k, v = _unpack(query, key, value, num_heads)
    if past_sequence_length is not None and past_key is not None:
        y, *rest = cached(
            q, k, v, (past_key, past_value), past_sequence_length, key_padding_mask, attention_bias, mask_filter_value,
            scale, unidirectional,
        )  # fmt: skip
        return (merge_heads(y), *rest)[: max(n_outputs, 1)]
    k, v = with_past(past_key, k), with_past(past_value, v)
    y, scores = _masked(q, k, v, key_padding_mask, attention_bias, unidirectional, mask_filter_value, scale)
    return (merge_heads(y), k, v, scores)[: max(n_outputs, 1)]


def _add_bias(query: Array, key: Any, value: Any, bias: Array, heads: int) -> tuple[Array, Any, Any]:
    """Bias of query, key and value; cross attention with cached keys biases the query only."""
    if query.ndim == 5:
        return query + bias.reshape(3, heads, -1).transpose(1, 0, 2), key, value
    size = query.shape[-1]
    query = query + bias[:size]
    if key is not None and key.ndim == 3:
        k_end = size + key.shape[-1]
        return query, key + bias[size:k_end], value + bias[k_end:]
    if key is not None and key.ndim == 5:
        return query, key + bias[size:].reshape(2, heads, -1).transpose(1, 0, 2), value
    return query, key, value


@lowers("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(
    x: Array, position_ids: Array, cos_cache: Array, sin_cache: Array, /, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> jax.Array:  # fmt: skip
    """Positions are a start offset (one element) or given per token."""
    steps = x.shape[1] if x.ndim == 3 else x.shape[2]
    positions = jnp.asarray(position_ids)
    if positions.ndim == 1:
        positions = jnp.broadcast_to(positions + jnp.arange(steps), (x.shape[0], steps))
    heads = num_heads or (None if x.ndim == 4 else x.shape[-1] // (2 * cos_cache.shape[-1]))
    return rotary(x, cos_cache, sin_cache, positions, bool(interleaved), rotary_embedding_dim, heads)


@lowers("MRotaryEmbedding", domain=DOMAIN)
def m_rotary_embedding(
    x: Array, position_ids: Array, cos_cache: Array, sin_cache: Array, /, *, mrope_section: Sequence[int],
    interleaved: int = 0, is_packed_batching: int = 0, mrope_layout: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> jax.Array:  # fmt: skip
    """Three positions per token (time, row, column), each for its section of the frequencies."""
    if sum(mrope_section) != cos_cache.shape[-1] or len(mrope_section) != 3:
        raise popart_exception(
            f"MRotaryEmbedding: mrope_section {list(mrope_section)}; expected 3 sizes of sum {cos_cache.shape[-1]}."
        )
    stream = np.repeat(np.arange(3), mrope_section)
    if mrope_layout:
        stream = np.zeros(cos_cache.shape[-1], int)
        for which in (1, 2):
            stream[which : 3 * mrope_section[which] : 3] = which
    places = jnp.moveaxis(jnp.asarray(position_ids), 0, -1)[..., stream]
    columns = np.arange(cos_cache.shape[-1])
    cos, sin = (jnp.asarray(cache)[places, columns] for cache in (cos_cache, sin_cache))
    return rotary(x, cos, sin, None, bool(interleaved), rotary_embedding_dim, num_heads or None)
