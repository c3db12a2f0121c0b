"""Attention of ONNX Runtime: Attention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..attention import masked_softmax, merge_heads, repeat_heads, rotary, rotate, split_heads
from ..registry import OutputCount, Static, lowers
from . import DOMAIN

_FILTER = -10000.0


def key_mask(mask: Any, batch: int, queries: int, keys: int, filter_value: float, dtype: Any) -> Any:
    """Additive mask (B or 1, 1, queries or 1, keys) of the forms that mask_index takes.

    Raises
    ------
    popart_exception
        A shape that none of the forms has.
    """
    if mask is None:
        return None
    mask, places = jnp.asarray(mask), jnp.arange(keys)
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch):
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


def attend(q, k, v, bias: Any, scale: float | None) -> tuple[jax.Array, jax.Array]:
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


def self_attention(qkv, heads, sizes, mask, past, bias, unidirectional, filter_value, scale):
    """Attention of the projected input (B, S, Dq + Dk + Dv); returns output and present (2, B, H, T, D)."""
    q, k, v = (split_heads(p, heads) for p in jnp.split(qkv, np.cumsum(sizes)[:2].tolist(), axis=-1))
    k, v = with_past(None if past is None else past[0], k), with_past(None if past is None else past[1], v)
    shape = (q.shape[0], q.shape[2], k.shape[2])
    total = _total(
        key_mask(mask, *shape, filter_value, q.dtype),
        causal_mask(*shape[1:], q.dtype) if unidirectional else None,
        bias,
    )
    y, _ = attend(q, k, v, total, scale)
    return merge_heads(y), (jnp.stack([k, v]) if k.shape == v.shape else None)


@lowers("Attention", domain=DOMAIN)
def attention(
    x, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, /, *, num_heads,
    do_rotary=0, mask_filter_value=_FILTER, past_present_share_buffer=0, qkv_hidden_sizes=(), rotary_embedding_dim=0,
    scale=None, unidirectional=0,
):  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise popart_exception("Attention with do_rotary or past_present_share_buffer is not supported.")
    sizes = qkv_hidden_sizes or (weights.shape[1] // 3,) * 3
    qkv = x @ weights + (0 if bias is None else bias)
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
    query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None, past_key=None, past_value=None,
    past_sequence_length=None, cache_indirection=None, /, *, num_heads, mask_filter_value=_FILTER, scale=None,
    unidirectional=0, n_outputs: OutputCount = 1,
):  # fmt: skip
    if past_sequence_length is not None or cache_indirection is not None:
        raise popart_exception("MultiHeadAttention with a shared cache buffer is not supported.")
    if bias is not None:
        query, key, value = _add_bias(query, key, value, bias, num_heads)
    q, k, v = _unpack(query, key, value, num_heads)
    k, v = with_past(past_key, k), with_past(past_value, v)
    shape = (q.shape[0], q.shape[2], k.shape[2])
    total = _total(
        key_mask(key_padding_mask, *shape, mask_filter_value, q.dtype),
        causal_mask(*shape[1:], q.dtype) if unidirectional else None,
        attention_bias,
    )
    y, scores = attend(q, k, v, total, scale)
    return (merge_heads(y), k, v, scores)[: max(n_outputs, 1)]


def _add_bias(query, key, value, bias, heads):
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
    x, position_ids, cos_cache, sin_cache, /, *, interleaved=0, is_packed_batching=0, num_heads=0,
    rotary_embedding_dim=0, scale=1.0,
):  # fmt: skip
    """Positions are a start offset (one element) or given per token."""
    steps = x.shape[1] if x.ndim == 3 else x.shape[2]
    positions = jnp.asarray(position_ids)
    if positions.ndim == 1:
        positions = jnp.broadcast_to(positions + jnp.arange(steps), (x.shape[0], steps))
    heads = num_heads or (None if x.ndim == 4 else x.shape[-1] // (2 * cos_cache.shape[-1]))
    return rotary(x, cos_cache, sin_cache, positions, bool(interleaved), rotary_embedding_dim, heads)


@lowers("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(
    query, key, value, past_key, past_value, seqlens_k, total_sequence_length: Static, cos_cache=None, sin_cache=None,
    position_ids=None, attention_bias=None, head_sink=None, /, *, num_heads, kv_num_heads, do_rotary=0, causal=1,
    local_window_size=-1, qk_output=0, rotary_interleaved=0, scale=None, smooth_softmax=0, softcap=0.0,
    k_quant_type="NONE", v_quant_type="NONE",
):  # fmt: skip
    """Causal attention with grouped heads over a cache; row b holds seqlens_k[b] + 1 keys after this call."""
    if qk_output or k_quant_type != "NONE" or v_quant_type != "NONE":
        raise popart_exception("GroupQueryAttention with qk_output or a quantised cache is not supported.")
    if key is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        query, key, value = jnp.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
    q, k, v = split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    steps, total = q.shape[2], int(np.reshape(total_sequence_length, ()))
    before = jnp.zeros_like(jnp.asarray(seqlens_k)) if steps == total else jnp.asarray(seqlens_k) + 1 - steps
    before = before.reshape(-1)
    if do_rotary:
        where = before[:, None] + jnp.arange(steps) if position_ids is None else jnp.asarray(position_ids)
        q, k = (_turn(x, cos_cache, sin_cache, where, bool(rotary_interleaved)) for x in (q, k))
    keys, values = _append(past_key, k, before, total), _append(past_value, v, before, total)
    distance = (before[:, None] + jnp.arange(steps))[..., None] - jnp.arange(keys.shape[2])
    allowed = distance >= 0 if causal else jnp.arange(keys.shape[2]) <= jnp.asarray(seqlens_k).reshape(-1, 1, 1)
    allowed = allowed & (distance < local_window_size) if local_window_size > 0 else allowed
    bias = jnp.where(allowed, 0, -jnp.inf)[:, None]
    bias = bias if attention_bias is None else bias.at[..., : attention_bias.shape[-1]].add(attention_bias)
    k, v = repeat_heads(keys, num_heads), repeat_heads(values, num_heads)
    y = _capped(q, k, v, bias, scale, softcap, smooth_softmax > 0, head_sink)
    return merge_heads(y), keys, values


def _turn(x: jax.Array, cos: Any, sin: Any, where: jax.Array, interleaved: bool) -> jax.Array:
    turned = rotate(x.transpose(0, 2, 1, 3), jnp.asarray(cos)[where], jnp.asarray(sin)[where], interleaved)
    return turned.transpose(0, 2, 1, 3)


def _append(past: Any, new: jax.Array, before: jax.Array, total: int) -> jax.Array:
    """The valid entries of the cache, then the new ones, then zeros."""
    room = max(total, 0 if past is None else past.shape[2])
    buffer = jnp.zeros((*new.shape[:2], room, new.shape[3]), new.dtype)
    if past is not None:
        valid = (jnp.arange(past.shape[2]) < before[:, None])[:, None, :, None]
        buffer = buffer.at[:, :, : past.shape[2]].set(jnp.where(valid, past, 0))
    return jax.vmap(lambda b, n, at: jax.lax.dynamic_update_slice_in_dim(b, n, at, axis=1))(buffer, new, before)


def _capped(q, k, v, bias, scale, softcap, smooth, sink) -> jax.Array:
    """Attention with softcap and, for smooth softmax or a sink, one more term in the denominator."""
    factor = jnp.asarray(scale or 1 / np.sqrt(q.shape[-1]), jnp.float32)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) * factor
    scores = softcap * jnp.tanh(scores / softcap) if softcap else scores
    if not smooth and sink is None:
        return masked_softmax(scores, bias).astype(q.dtype) @ v
    extra = jnp.zeros(q.shape[1]) if sink is None else jnp.asarray(sink)
    column = jnp.broadcast_to(extra.reshape(1, -1, 1, 1), (*scores.shape[:3], 1)).astype(scores.dtype)
    probs = jax.nn.softmax(jnp.concatenate([scores + bias, column], -1), axis=-1)[..., :-1]
    return probs.astype(q.dtype) @ v
