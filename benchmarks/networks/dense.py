"""Multi-layer perceptrons: 784-512-512-10, and one whose step is all overhead."""

from __future__ import annotations

from collections.abc import Mapping
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
    return a.finish(name, [batch, sizes[0]], h, _lay_out, mlp_forward)


mlp = partial(perceptron, "mlp", SIZES)
small_mlp = partial(perceptron, "small mlp", SMALL)


def _lay_out(params: Params) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value.T) for name, value in params.items()}


def mlp_forward(params: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
    """The perceptron by hand."""
    for i in range(2):
        x = jax.nn.relu(x @ params[f"w{i}"] + params[f"b{i}"])
    return x @ params["w2"] + params["b2"]
