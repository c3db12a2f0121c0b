"""Attention with grouped heads over a key-value cache, as decoders of language models use it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..arrays import Array
from ..attention import masked_softmax, merge_heads, repeat_heads, rotate, split_heads
from ..registry import Gap, OutputCount, Static, lowers
from . import DOMAIN
from .attention import attend, cached, key_mask


@lowers("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(
    query: Array, key: Gap, value: Gap, past_key: Gap, past_value: Gap, seqlens_k: Array,
    total_sequence_length: Static, cos_cache: Array | None = None, sin_cache: Array | None = None,
    position_ids: Array | None = None, attention_bias: Array | None = None, head_sink: Array | None = None,
    k_scale: Array | None = None, v_scale: Array | None = None, q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None, /, *, num_heads: int, kv_num_heads: int, do_rotary: int = 0, causal: int = 1,
    kv_cache_bit_width: int = 0, local_window_size: int = -1, qk_norm_epsilon: float = 1e-6, qk_output: int = 0,
    rotary_interleaved: int = 0, scale: float | None = None, sliding_window_cache: int = 0, smooth_softmax: int = 0,
    softcap: float = 0.0, k_quant_type: str = "NONE", v_quant_type: str = "NONE", n_outputs: OutputCount = 1,
) -> tuple[jax.Array | None, ...]:  # fmt: skip
    """Row b of the cache holds seqlens_k[b] + 1 keys after this call."""
    _refuse(sliding_window_cache, kv_cache_bit_width)
    if key is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        query, key, value = jnp.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
    q, k, v = split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    if q_norm_weight is not None:
        q, k = _normal(q, q_norm_weight, qk_norm_epsilon), _normal(k, k_norm_weight, qk_norm_epsilon)
    steps, total = q.shape[2], int(np.reshape(total_sequence_length, ()))
    last = jnp.asarray(seqlens_k).reshape(-1)
    before = jnp.zeros_like(last) if steps == total else last + 1 - steps
    places = before[:, None] + jnp.arange(steps)
    if do_rotary:
        where = places if position_ids is None else jnp.asarray(position_ids)
        q, k = (_turn(x, cos_cache, sin_cache, where, bool(rotary_interleaved)) for x in (q, k))
    keys = _append(past_key, _stored(k, k_scale, past_key), before, total)
    values = _append(past_value, _stored(v, v_scale, past_value), before, total)
    distance = places[..., None] - jnp.arange(keys.shape[2])
    allowed = (jnp.arange(keys.shape[2]) <= last[:, None, None]) & (distance >= 0 if causal else True)
    allowed = allowed & (distance < local_window_size) if local_window_size > 0 else allowed
    bias = jnp.where(allowed, 0, -jnp.inf)[:, None]
    bias = bias if attention_bias is None else bias + _up_to(attention_bias, keys.shape[2])
    k, v = (repeat_heads(_loaded(x, s, q.dtype), num_heads) for x, s in ((keys, k_scale), (values, v_scale)))
    y, scores, probs = _capped(q, k, v, bias, scale, softcap, smooth_softmax > 0, head_sink)
    shown = (scores if qk_output == 1 else probs)[..., :total].astype(q.dtype) if qk_output else None
    return (merge_heads(y), keys, values, shown)[: max(n_outputs, 1)]


def _refuse(sliding: int, bits: int) -> None:
    if sliding or bits not in (0, 8):
        raise popart_exception(
            f"GroupQueryAttention with sliding_window_cache {sliding}, kv_cache_bit_width {bits}: expected a cache of "
            "the whole sequence, in the type of the data or in 8 bits.\n  fix: export the model so."
        )


def _normal(x: jax.Array, weight: Any, epsilon: float) -> jax.Array:
    exact = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.square(exact).mean(-1, keepdims=True) + epsilon)
    return (exact * inverse * weight.astype(jnp.float32)).astype(x.dtype)


def _turn(x: jax.Array, cos: Any, sin: Any, where: jax.Array, interleaved: bool) -> jax.Array:
    turned = rotate(x.transpose(0, 2, 1, 3), jnp.asarray(cos)[where], jnp.asarray(sin)[where], interleaved)
    return turned.transpose(0, 2, 1, 3)


def _per_head(scale: Any, heads: int) -> jax.Array:
    """One scale for all, or one per head and feature."""
    return jnp.asarray(scale).reshape(()) if np.size(scale) == 1 else jnp.asarray(scale).reshape(1, heads, 1, -1)


def _stored(new: jax.Array, scale: Any, past: Any) -> jax.Array:
    """New keys or values, quantised if the cache is."""
    if scale is None:
        return new
    kind = jnp.int8 if past is None else past.dtype
    limits = jnp.iinfo(kind)
    return jnp.clip(jnp.round(new / _per_head(scale, new.shape[1])), limits.min, limits.max).astype(kind)


def _loaded(held: jax.Array, scale: Any, dtype: Any) -> jax.Array:
    return held if scale is None else held.astype(dtype) * _per_head(scale, held.shape[1]).astype(dtype)


def _append(past: Any, new: jax.Array, before: jax.Array, total: int) -> jax.Array:
    """The valid entries of the cache, then the new ones, then zeros."""
    room = max(total, 0 if past is None else past.shape[2])
    buffer = jnp.zeros((*new.shape[:2], room, new.shape[3]), new.dtype)
    if past is not None:
        valid = (jnp.arange(past.shape[2]) < before[:, None])[:, None, :, None]
        buffer = buffer.at[:, :, : past.shape[2]].set(jnp.where(valid, past, 0))
    return jax.vmap(partial(jax.lax.dynamic_update_slice_in_dim, axis=1))(buffer, new, before)


def _up_to(bias: Any, keys: int) -> jax.Array:
    missing = max(keys - bias.shape[-1], 0)
    return jnp.pad(jnp.asarray(bias), [(0, 0)] * (bias.ndim - 1) + [(0, missing)])[..., :keys]


def _capped(
    q: Array, k: Array, v: Array, bias: Array, scale: float | None, softcap: float, smooth: int, sink: Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Attention with softcap and, for smooth softmax or a sink, one more term in the denominator."""
    factor = jnp.asarray(scale or 1 / np.sqrt(q.shape[-1]), jnp.float32)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) * factor
    scores = softcap * jnp.tanh(scores / softcap) if softcap else scores
    if not smooth and sink is None:
        probs = masked_softmax(scores, bias)
        return probs.astype(q.dtype) @ v, _seen(scores, bias), probs
    extra = jnp.zeros(q.shape[1]) if sink is None else jnp.asarray(sink)
    column = jnp.broadcast_to(extra.reshape(1, -1, 1, 1), (*scores.shape[:3], 1)).astype(scores.dtype)
    probs = jax.nn.softmax(jnp.concatenate([scores + bias, column], -1), axis=-1)[..., :-1]
    return probs.astype(q.dtype) @ v, _seen(scores, bias), probs


def _seen(scores: jax.Array, bias: Array) -> jax.Array:
    """Scores of the unmasked pairs, 0 for the others."""
    return jnp.where(jnp.isneginf(bias), 0, scores + bias)


@lowers("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder_masked_multi_head_attention(
    query: Array, key: Array | None = None, value: Array | None = None, mask_index: Array | None = None,
    attention_bias: Array | None = None, past_key: Array | None = None, past_value: Array | None = None,
    past_sequence_length: Array | None = None, beam_width: Array | None = None,
    cache_indirection: Array | None = None, bias: Array | None = None, /, *, num_heads: int,
    mask_filter_value: float = -10000.0, output_qk: int = 0, past_present_share_buffer: int = 0,
    scale: float | None = None, n_outputs: OutputCount = 1,
) -> tuple[Array | None, ...]:  # fmt: skip
    """One decoder step: four-dimensional keys come from the encoder, others extend the cache."""
    if key is None:
        query, key, value = jnp.split(query, 3, axis=-1)
    parts = _biased((query, key, value), bias)
    q, k, v = (split_heads(x, num_heads) for x in parts)
    if key.ndim == 4:
        mask = key_mask(mask_index, q.shape[0], 1, k.shape[2], mask_filter_value, q.dtype)
        y, scores = attend(q, k, v, _plus(mask, attention_bias), scale)
        return (merge_heads(y), None, None, scores)[: max(n_outputs, 1)]
    if not past_present_share_buffer:
        past = (past_key, past_value)
        grown = [new if old is None else jnp.concatenate([old, new], 2) for old, new in zip(past, (k, v), strict=True)]
        mask = key_mask(mask_index, q.shape[0], 1, grown[0].shape[2], mask_filter_value, q.dtype)
        y, scores = attend(q, grown[0], grown[1], _plus(mask, attention_bias), scale)
        return (merge_heads(y), *grown, scores)[: max(n_outputs, 1)]
    past = (past_key, past_value) if cache_indirection is None else _of_beams((past_key, past_value), cache_indirection)
    y, keys, values, scores = cached(
        q, k, v, past, past_sequence_length, mask_index, attention_bias, mask_filter_value, scale, 0
    )
    if cache_indirection is not None:  # the buffers are not reordered
        _, keys, values, _ = cached(
            q, k, v, (past_key, past_value), past_sequence_length, None, None, mask_filter_value, scale, 0
        )
    return (merge_heads(y), keys, values, scores)[: max(n_outputs, 1)]


def _plus(mask: Any, bias: Any) -> Any:
    return bias if mask is None else mask if bias is None else mask + bias


def _biased(parts: tuple[Any, ...], bias: Any) -> tuple[Any, ...]:
    """Add the packed bias to query, key and value; keys of the encoder already include it."""
    if bias is None:
        return parts
    query, key, value = parts
    size = query.shape[-1]
    if key.ndim == 4:
        return query + bias[:size], key, value
    return query + bias[:size], key + bias[size : 2 * size], value + bias[2 * size :]


def _of_beams(past: tuple[Any, Any], origin: Any) -> tuple[jax.Array, ...]:
    """Cache rows of every beam, each entry from the beam that `origin` (batch, beams, length) names."""
    batch, beams, length = origin.shape
    rows = (jnp.arange(batch)[:, None, None] * beams + origin).reshape(batch * beams, length)
    time = jnp.arange(length)
    return tuple(jnp.moveaxis(jnp.asarray(x)[rows, :, time], 1, 2) for x in past)
