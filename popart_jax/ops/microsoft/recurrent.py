"""LSTM with 8-bit weights; input and hidden state are quantised to 8 bits in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import Array
from ..quantize import dynamic_quantize_linear, integer_product
from ..recurrent import Product, lstm_steps
from ..registry import Gap, lowers
from ..two_way import with_jvp
from . import DOMAIN
from .quantized import real


@lowers("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(
    x: Array, w: Array, r: Array, b: Gap, sequence_lens: Gap, initial_h: Gap, initial_c: Gap, p: Gap, w_scale: Array,
    w_zero: Array, r_scale: Array, r_zero: Array, /, *, activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Weights (directions, input, gates) stand for real ones; products are of bytes."""
    products = [(_product(w, w_scale, w_zero, d), _product(r, r_scale, r_zero, d)) for d in range(r.shape[0])]
    return lstm_steps(
        x, w.swapaxes(1, 2), r.swapaxes(1, 2), b, sequence_lens, initial_h, initial_c, p, activations=activations,
        activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip, direction=direction,
        hidden_size=hidden_size, input_forget=input_forget, products=products,
    )  # fmt: skip


def _product(weights: Any, scale: Any, zero: Any, d: int) -> Product:
    """The product with weights of one direction; parameters are numbers, or one for each column.

    The weights stay out of the arguments, so that they are known where a kernel is chosen.
    """
    q, of_q, p = weights[d], scale[d].reshape(-1), zero[d].reshape(-1)

    @with_jvp()
    def product(x: jax.Array, scale: jax.Array) -> jax.Array:
        steps, step, middle = dynamic_quantize_linear(x)
        return integer_product(steps, q, middle, p).astype(np.float32) * (step * scale)

    @product.defjvp
    def _(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
        """As if x were not rounded, as gradients of quantised networks are."""
        (x, scale), (of_x, of_scale) = primals, tangents
        steps, step, middle = dynamic_quantize_linear(x)
        rounded = real(steps, step, middle)
        return product(x, scale), of_x @ real(q, scale, p) + (rounded @ real(q, 1, p)) * of_scale

    return product, jnp.asarray(of_q, np.float32)
