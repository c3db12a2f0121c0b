"""Multi-layer perceptrons: 784-512-512-10, and one whose step is all overhead."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp

from .network import Author, Network, Params

SIZES = (784, 512, 512, 10)
SMALL = (64, 32, 32, 10)


def perceptron(name: str, sizes: tuple[int, ...], batch: int) -> Network:
    """Three dense layers with relu."""
    a = Author()
    h = a.input([batch, sizes[0]])
    for i, (n, m) in enumerate(pairwise(sizes)):
        h = a.onnx.gemm([h, a.weight(f"w{i}", m, n), a.weight(f"b{i}", m, scale=0.1)], transB=1)
        h = a.onnx.relu([h]) if i < 2 else h
    return a.finish(name, [batch, sizes[0]], h, _lay_out, _forward)


mlp = partial(perceptron, "mlp", SIZES)
small_mlp = partial(perceptron, "small mlp", SMALL)


def _lay_out(params: Params):
    return [(jnp.asarray(params[f"w{i}"].T), jnp.asarray(params[f"b{i}"])) for i in range(3)]


def _forward(layers: Sequence[tuple[jax.Array, jax.Array]], x: jax.Array):
    for w, b in layers[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ layers[-1][0] + layers[-1][1]
