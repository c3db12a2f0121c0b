"""Linear attention of decoders such as Qwen3.5: its gates, its recurrence, and the convolution before it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import popart_exception
from ..arrays import Array, merge_axes
from ..attention import recurrent_attention
from ..convolution import causal_conv
from ..normalization import wide
from ..operator import ELEMENTWISE, ROUNDS, operator
from ..registry import lowers
from . import DOMAIN

operator("LinearAttentionGate", ELEMENTWISE | ROUNDS)


@lowers("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(
    a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None, /
) -> Array | tuple[Array, ...]:
    """Decay ``decay_scale * softplus(a + dt_bias)``, computed in single precision, and update rate ``sigmoid(b)``."""
    decay = (decay_scale * jax.nn.softplus(wide(a) + dt_bias)).astype(a.dtype)
    return decay if b is None else (decay, jax.nn.sigmoid(b))


@lowers("LinearAttention", domain=DOMAIN)
def linear_attention(
    q: Array, k: Array, v: Array, past_state: Array | None = None, decay: Array | None = None,
    beta: Array | None = None, /, *, chunk_size: int = 64, kv_num_heads: int, q_num_heads: int, scale: float = 0.0,
    state_window: int = 0, update_rule: str = "gated_delta",
) -> tuple[Any, Any]:  # fmt: skip
    """As ONNX's; with `state_window` the states after the last steps, zeros before the first."""
    heads = q_num_heads, kv_num_heads
    past = past_state[-1] if past_state is not None and state_window else past_state
    y, last, states = recurrent_attention(q, k, v, past, decay, beta, heads, scale, update_rule, state_window > 0)
    return y, last if states is None else _window(list(states[-state_window:]), state_window)


@lowers("CausalConvWithState", domain=DOMAIN)
def causal_conv_with_state(
    x: Array, w: Array, b: Array | None = None, past: Array | None = None, /, *, activation: str = "none",
    channels_last: int = 0, dilation: int = 1, input_channel_offset: int = 0, input_channels: int = 0, ndim: int = 1,
    state_channels_last: int = -1, state_length: int = 0, state_update_capacity: int = 0, state_window: int = 0,
) -> tuple[Any, Any]:  # fmt: skip
    """As ONNX's, with dilation and layouts; with `state_window` the states after the last steps."""
    if input_channels or input_channel_offset or state_length or state_update_capacity or state_channels_last != -1:
        raise popart_exception("CausalConvWithState: attributes that only ONNX Runtime's CUDA kernel has are refused.")
    if ndim != 1:
        raise popart_exception(f"CausalConvWithState: ndim must be 1, as in ONNX Runtime's kernels; got {ndim}.")
    past = past[-1] if past is not None and state_window else past
    trailing = x.shape[2:]

    def first(a: Any) -> Any:  # (B, T, ...) to (B, C, T)
        return merge_axes(a, 2).swapaxes(1, 2) if channels_last else a

    def back(a: Any) -> Any:
        return a.swapaxes(1, 2).reshape(a.shape[0], a.shape[2], *trailing) if channels_last else a

    y, seen = causal_conv(first(x), w, b, None if past is None else first(past), activation, dilation)
    width, steps = (w.shape[-1] - 1) * dilation, seen.shape[-1] - (w.shape[-1] - 1) * dilation
    if not state_window:
        return back(y), back(seen[..., steps:])
    ends = range(max(1, steps - state_window + 1), steps + 1)
    return back(y), _window([back(seen[..., end : end + width]) for end in ends], state_window)


def _window(states: list[Any], size: int) -> jax.Array:
    """The last `size` states on a leading axis; where there are fewer, zeros come first."""
    return jnp.stack([*[jnp.zeros_like(states[0])] * (size - len(states)), *states])
