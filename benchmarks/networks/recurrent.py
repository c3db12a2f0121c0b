"""LSTM over 64 steps, or as many as asked, and a dense classifier on its last output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .network import Author, Network, Params

STEPS, WIDTH, HIDDEN, CLASSES = 64, 128, 128, 10


def lstm_classifier(batch: int, steps: int = STEPS) -> Network:
    """ONNX LSTM (gates i, o, f, c), then Gemm on the last hidden state."""
    a = Author()
    x = a.input([steps, batch, WIDTH])
    w, r = a.weight("w", 1, 4 * HIDDEN, WIDTH, scale=0.09), a.weight("r", 1, 4 * HIDDEN, HIDDEN, scale=0.09)
    bias = a.weight("b", 1, 8 * HIDDEN, scale=0.1)
    _, last, _ = a.onnx.lstm([x, w, r, bias], 3, hidden_size=HIDDEN)
    flat = a.onnx.squeeze([last], axes=[0])
    logits = a.onnx.gemm([flat, a.weight("wo", CLASSES, HIDDEN), a.weight("bo", CLASSES, scale=0.1)], transB=1)
    return a.finish("lstm", [steps, batch, WIDTH], logits, _lay_out, _forward)


def _lay_out(p: Params):
    bias = p["b"][0, : 4 * HIDDEN] + p["b"][0, 4 * HIDDEN :]
    arrays = {"w": p["w"][0].T, "r": p["r"][0].T, "b": bias, "wo": p["wo"].T, "bo": p["bo"]}
    return {k: jnp.asarray(np.ascontiguousarray(v)) for k, v in arrays.items()}


def _forward(p: Mapping[str, Any], x: jax.Array):
    projected = x @ p["w"] + p["b"]

    def step(carry: tuple[jax.Array, jax.Array], z: jax.Array):
        h, c = carry
        i, o, f, g = jnp.split(z + h @ p["r"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), None

    zero = jnp.zeros((x.shape[1], HIDDEN), x.dtype)
    (h, _), _ = jax.lax.scan(step, (zero, zero), projected)
    return h @ p["wo"] + p["bo"]
