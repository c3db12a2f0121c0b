"""Gates of linear attention."""

from __future__ import annotations

import jax

from ..normalization import wide
from ..operator import ELEMENTWISE, ROUNDS, operator
from ..registry import lowers
from . import DOMAIN

operator("LinearAttentionGate", ELEMENTWISE | ROUNDS)


@lowers("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(a, dt_bias, decay_scale, b=None, /):
    """Decay ``decay_scale * softplus(a + dt_bias)``, computed in single precision, and update rate ``sigmoid(b)``."""
    decay = (decay_scale * jax.nn.softplus(wide(a) + dt_bias)).astype(a.dtype)
    return decay if b is None else (decay, jax.nn.sigmoid(b))
