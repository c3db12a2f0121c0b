"""LSTM with 8-bit weights; input and hidden state are quantised to 8 bits in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..arrays import Array
from ..quantize import dynamic_quantize_linear
from ..recurrent import lstm_steps
from ..registry import Gap, lowers
from ..two_way import with_jvp
from . import DOMAIN
from .quantized import real


@with_jvp()
def rounded(x: jax.Array) -> jax.Array:
    """x quantised to 8 bits over its own range and dequantised; straight-through gradient."""
    q, scale, zero = dynamic_quantize_linear(x)
    return real(jnp.asarray(q), scale, jnp.asarray(zero))


@rounded.defjvp
def _rounded_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, Any]:
    return rounded(*primals), tangents[0]


@lowers("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(
    x: Array, w: Array, r: Array, b: Gap, sequence_lens: Gap, initial_h: Gap, initial_c: Gap, p: Gap, w_scale: Array,
    w_zero: Array, r_scale: Array, r_zero: Array, /, *, activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Weights (directions, input, gates) stand for real ones; so do the rounded input and hidden state."""
    return lstm_steps(
        rounded(jnp.asarray(x)), _weights(w, w_scale, w_zero), _weights(r, r_scale, r_zero), b, sequence_lens,
        initial_h, initial_c, p, activations=activations, activation_alpha=activation_alpha,
        activation_beta=activation_beta, clip=clip, direction=direction, hidden_size=hidden_size,
        input_forget=input_forget, state_transform=rounded,
    )  # fmt: skip


def _weights(q: Any, scale: Any, zero: Any) -> jax.Array:
    """Real weights (directions, gates, input); parameters are per direction, or per gate row as well."""
    spread = (v.reshape(v.shape[0], 1, -1) if v.ndim > 1 else v.reshape(-1, 1, 1) for v in (scale, zero))
    return real(q, *spread).swapaxes(1, 2)
