"""Attention, RotaryEmbedding, LinearAttention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from . import varying
from .arrays import Array, merge_axes, onnx_dtype, split_axis, wrap_indices
from .registry import OutputCount, lowers


def split_heads(x: Any, heads: int | None) -> jax.Array:
    """(B, S, heads * D) to (B, heads, S, D); four-dimensional data stay."""
    if x.ndim == 4:
        return x
    if not heads or x.shape[-1] % heads:
        raise popart_exception(f"{x.shape[-1]} features can't be divided among {heads} heads.")
    return split_axis(x, 2, heads).transpose(0, 2, 1, 3)


def merge_heads(x: jax.Array) -> jax.Array:
    """(B, heads, S, D) to (B, S, heads * D)."""
    return merge_axes(x.transpose(0, 2, 1, 3), 2)


def repeat_heads(x: jax.Array, heads: int) -> jax.Array:
    """Key or value heads repeated so that there are `heads` (grouped query attention)."""
    return x if x.shape[1] == heads else jnp.repeat(x, heads // x.shape[1], axis=1)


def masked_softmax(scores: jax.Array, bias: Any) -> jax.Array:
    """Softmax over the last axis of scores + bias; fully masked rows give zeros, not NaN."""
    dead = None if bias is None else jnp.isneginf(jnp.max(bias, axis=-1, keepdims=True))
    total = scores if bias is None else scores + bias.astype(scores.dtype)
    total = total if dead is None else jnp.where(dead, 0, total)
    probs = jax.nn.softmax(total, axis=-1)
    return probs if dead is None else jnp.where(dead, 0, probs)


def additive(mask: Array, dtype: Any) -> Array:
    """A boolean mask (True attends) as 0 and -inf; other masks are additive already."""
    if mask.dtype != np.bool_:
        return mask.astype(dtype)
    return jnp.where(mask, jnp.zeros((), dtype), jnp.asarray(-jnp.inf, dtype))


def _bias(
    mask: Array | None, queries: int, keys: int, offset: Any, causal: int, left: int, right: int,
    lengths: Array | None, dtype: np.dtype,
) -> Any:  # fmt: skip
    """The sum of all additive masks: mask input, causal mask, window, padding."""
    parts = [] if mask is None else [_pad_mask(additive(mask, dtype), keys)]
    distance = jnp.arange(queries)[:, None] + offset - jnp.arange(keys)  # > 0: the key lies in the past
    distance = distance if distance.ndim == 2 else distance[:, None]
    allowed: list[jax.Array] = []
    if causal:
        allowed.append(distance >= 0)
    if left >= 0:
        allowed.append(distance <= left)
    if right >= 0:
        allowed.append(-distance <= right)
    if lengths is not None:
        allowed.append((jnp.arange(keys) < lengths.reshape(-1, 1))[:, None, None])
    parts += [additive(a, dtype) for a in allowed]
    if not parts:
        return None
    total = sum(parts[1:], start=parts[0])
    return jnp.broadcast_to(total, np.broadcast_shapes(total.shape, (queries, keys)))


def _pad_mask(mask: Array, keys: int) -> Array:
    missing = keys - mask.shape[-1]
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
    return jnp.pad(mask, widths, constant_values=-jnp.inf) if missing > 0 else mask


def _offset(past_key: Any, lengths: Any, queries: int) -> Any:
    """Number of keys before the first query: the cache's size, or per batch from the sequence lengths."""
    if past_key is not None:
        return past_key.shape[2]
    return 0 if lengths is None else lengths.reshape(-1, 1, 1) - queries


def _scores(q: jax.Array, k: jax.Array, scale: float | None) -> jax.Array:
    """Scaled products; the scale is split between both factors, as ONNX's function body does."""
    root = np.sqrt(1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    factor = jnp.asarray(root, q.dtype)
    return jnp.einsum("bhqd,bhkd->bhqk", q * factor, k * factor)


@lowers("Attention", 23, 24, 25)
def attention(
    q: Array, k: Array, v: Array, attn_mask: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, nonpad_kv_seqlen: Array | None = None, /, *, is_causal: int = 0,
    kv_num_heads: int | None = None, left_window_size: int = -1, q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0, right_window_size: int = -1, scale: float | None = None, softcap: float = 0.0,
    softmax_precision: int | None = None, n_outputs: OutputCount = 1,
) -> tuple[Array, ...]:  # fmt: skip
    """Scaled dot-product attention with cache, grouped heads, softcap, causal and window masks."""
    flat = q.ndim == 3
    q, k, v = split_heads(q, q_num_heads), split_heads(k, kv_num_heads), split_heads(v, kv_num_heads)
    keys = k if past_key is None else jnp.concatenate([past_key, k], axis=2)
    values = v if past_value is None else jnp.concatenate([past_value, v], axis=2)
    offset = _offset(past_key, nonpad_kv_seqlen, q.shape[2])
    bias = _bias(
        attn_mask, q.shape[2], keys.shape[2], offset, is_causal, left_window_size, right_window_size, nonpad_kv_seqlen,
        q.dtype,
    )  # fmt: skip
    raw = _scores(q, repeat_heads(keys, q.shape[1]), scale)
    capped = softcap * jnp.tanh(raw / softcap) if softcap else raw
    precise = capped if softmax_precision is None else capped.astype(onnx_dtype(softmax_precision))
    probs = masked_softmax(precise, bias).astype(q.dtype)
    y = probs @ repeat_heads(values, q.shape[1])
    y = merge_heads(y) if flat else y
    if n_outputs < 4:
        return y, keys, values
    shown = {0: lambda: raw, 1: lambda: capped, 2: lambda: capped if bias is None else capped + bias, 3: lambda: probs}
    return y, keys, values, shown[qk_matmul_output_mode]().astype(q.dtype)


def rotate(x: jax.Array, cos: Array, sin: Array, interleaved: bool) -> jax.Array:
    """Rotate the leading 2 * cos.shape[-1] features of x (B, S, heads, D) by angles (B, S, half)."""
    half = cos.shape[-1]
    cos, sin = cos[..., None, :].astype(x.dtype), sin[..., None, :].astype(x.dtype)
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    parts = (cos * a - sin * b, sin * a + cos * b)
    joined = jnp.stack(parts, -1).reshape(turned.shape) if interleaved else jnp.concatenate(parts, -1)
    return jnp.concatenate([joined, rest], -1) if rest.shape[-1] else joined


def rotary(
    x: Array, cos_cache: Array, sin_cache: Array, position_ids: Array | None, interleaved: bool, dim: int,
    heads: int | None,
) -> jax.Array:  # fmt: skip
    """Rotary embedding of (B, S, heads * D) or (B, heads, S, D) data."""
    four = split_heads(x, heads).transpose(0, 2, 1, 3)
    half = (dim or four.shape[-1]) // 2
    if position_ids is not None:
        cos_cache, sin_cache = jnp.asarray(cos_cache)[position_ids], jnp.asarray(sin_cache)[position_ids]
    if cos_cache.shape[-1] != half or sin_cache.shape[-1] != half:
        raise popart_exception(
            f"The last dimension of cos and sin cache ({cos_cache.shape[-1]}) must be rotary_embedding_dim/2 ({half})."
        )
    y = rotate(four, cos_cache, sin_cache, interleaved)
    return y.reshape(x.shape) if x.ndim == 3 else y.transpose(0, 2, 1, 3)


@lowers("RotaryEmbedding", 23)
def rotary_embedding(
    x: Array, cos_cache: Array, sin_cache: Array, position_ids: Array | None = None, /, *, interleaved: int = 0,
    num_heads: int | None = None, rotary_embedding_dim: int = 0,
) -> jax.Array:  # fmt: skip
    places = None
    if position_ids is not None:
        places = wrap_indices(position_ids, cos_cache.shape[0])
        steps = x.shape[-2]
        if places.shape != (x.shape[0], steps):
            raise popart_exception(f"RotaryEmbedding: position_ids {list(places.shape)}; expected "
                                   f"[{x.shape[0]}, {steps}]")  # fmt: skip
    return rotary(x, cos_cache, sin_cache, places, bool(interleaved), rotary_embedding_dim, num_heads)


@lowers("LinearAttention", 27)
def linear_attention(
    q: Array, k: Array, v: Array, past_state: Array | None = None, decay: Array | None = None,
    beta: Array | None = None, /, *, kv_num_heads: int, q_num_heads: int, chunk_size: int = 64, scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Any, Any]:  # fmt: skip
    """Recurrence S = exp(decay) S + k (beta (v - S^T k)); the read-out is scale * q^T S. Computed in float32."""
    heads = q_num_heads, kv_num_heads
    y, last, _ = recurrent_attention(q, k, v, past_state, decay, beta, heads, scale, update_rule)
    return y, last


def recurrent_attention(
    q: Array, k: Array, v: Array, past_state: Array | None, decay: Array | None, beta: Array | None,
    heads: tuple[int, int], scale: float, update_rule: str, all_states: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Outputs, the last state, and the states after every step (T, B, heads, D, M), None unless `all_states`."""
    needs = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
    if update_rule not in needs:
        raise popart_exception(f"Unknown update_rule {update_rule!r}; expected one of {sorted(needs)}.")
    if ((decay is not None), (beta is not None)) != needs[update_rule]:
        raise popart_exception(f"update_rule {update_rule!r} needs (decay, beta) = {needs[update_rule]}.")
    q_heads, kv_heads = heads
    batch, dtype = q.shape[0], q.dtype
    k_heads = k.shape[-1] * q_heads // q.shape[-1]  # Qwen3.5 has fewer of them than of values
    q4, k4, v4 = (_by_time(x, n) for x, n in ((q, q_heads), (k, k_heads), (v, kv_heads)))
    forget = None if decay is None else _by_time(decay, kv_heads)
    rate = None if beta is None else _by_time(beta, beta.shape[-1])
    factor = scale or 1 / np.sqrt(q4.shape[-1])
    start = jnp.zeros((batch, kv_heads, k4.shape[-1], v4.shape[-1])) if past_state is None else past_state
    kept = dtype if past_state is None else past_state.dtype
    out = max(heads)

    def step(state: jax.Array, row: Any):
        qt, kt, vt, gt, bt = row
        kt = repeat_heads(kt, kv_heads)
        state = state if gt is None else state * jnp.exp(gt)[..., None]
        vt = vt if bt is None else bt * (vt - jnp.einsum("bhdm,bhd->bhm", state, kt))
        state = state + kt[..., :, None] * vt[..., None, :]
        y = factor * jnp.einsum("bhd,bhdm->bhm", repeat_heads(qt, out), repeat_heads(state, out))
        return state, (y, state if all_states else None)

    last, (ys, states) = varying.scan(step, start.astype(jnp.float32), (q4, k4, v4, forget, rate))
    states = None if states is None else states.astype(kept)
    return merge_axes(ys.transpose(1, 0, 2, 3), 2).astype(dtype), last.astype(kept), states


def _by_time(x: Array, heads: int) -> Array:
    """(B, T, heads * D) as float32 (T, B, heads, D)."""
    return split_axis(x.astype(jnp.float32), 2, heads).swapaxes(0, 1)
