"""Gates of linear attention."""

from __future__ import annotations

import jax

from ..arrays import Array
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
