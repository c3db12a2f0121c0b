"""Multi-layer perceptron, 784-512-512-10."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp

from .network import Author, Network, Params

SIZES = (784, 512, 512, 10)


def mlp(batch: int) -> Network:
    """Three dense layers with relu."""
    a = Author()
    h = a.input([batch, SIZES[0]])
    for i, (n, m) in enumerate(pairwise(SIZES)):
        h = a.onnx.gemm([h, a.weight(f"w{i}", m, n), a.weight(f"b{i}", m, scale=0.1)], transB=1)
        h = a.onnx.relu([h]) if i < 2 else h
    return a.finish("mlp", [batch, SIZES[0]], h, _lay_out, _forward)


def _lay_out(params: Params):
    return [(jnp.asarray(params[f"w{i}"].T), jnp.asarray(params[f"b{i}"])) for i in range(3)]


def _forward(layers, x):
    for w, b in layers[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ layers[-1][0] + layers[-1][1]
