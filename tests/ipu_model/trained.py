"""A small training step with named scopes and a loop, profiled: what tests of reports read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import ipu_model
from ipu_model import Argument


def trained(**options: Any) -> ipu_model.Report:
    """Report of one step of two layers with a loop between them."""

    def loss(p, x):
        with jax.named_scope("onnx[fc1]"):
            h = jnp.tanh(x @ p["a"])
        with jax.named_scope("onnx[loop]"):
            h, _ = lax.scan(lambda h, _: (jnp.sin(h), None), h, None, length=3)
        with jax.named_scope("onnx[fc2]"):
            return (h @ p["b"]).sum()

    def step(p, x):
        g = jax.grad(loss)(p, x)
        with jax.named_scope("update"):
            return jax.tree.map(lambda w, d: w - 0.1 * d, p, g)

    p = {"a": jnp.ones((64, 128)), "b": jnp.ones((128, 32))}
    inputs = [Argument("a", "weight", donated_to=0), Argument("b", "weight", donated_to=1), Argument("x", "stream")]
    return ipu_model.profile(step, p, jnp.ones((16, 64)), inputs=inputs, **options)
