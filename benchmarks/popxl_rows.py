"""PopXL: one training step on MNIST's sizes, and the time to build a transformer of outlined layers, beside JAX."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import jax
import numpy as np
from rich.table import Table

from popart_jax import popxl
from popart_jax.popxl import ops

from . import mnist_step
from .mnist_step import BATCH
from .popxl_mnist import mnist

LAYERS, TOKENS, WIDTH, HEADS = 24, 64, 128, 4
Calls = Mapping[str, Callable[[], np.ndarray]]


def rows() -> Iterator[tuple[str, Callable[[], Calls]]]:
    """The training step."""
    yield f"popxl mnist step b{BATCH}", _mnist


def _mnist() -> Calls:
    images, labels, held = mnist_step.data()
    return {"ours": mnist(images, labels, held), "by hand": mnist_step.by_hand(images, labels, held)}


class _Layer(popxl.Module):
    """Attention and a perceptron, each added to its input."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
        self.inputs = [popxl.graph_input(s, popxl.float32) for s in shapes]
        qkv, out, up, down = self.inputs
        split = ops.transpose(ops.reshape(x @ qkv, (TOKENS, 3, HEADS, WIDTH // HEADS)), (1, 2, 0, 3))
        q, k, v = (ops.squeeze(t, [0]) for t in ops.split(split, 3, axis=0))
        scores = ops.softmax(q @ ops.transpose(k, (0, 2, 1)) * (WIDTH // HEADS) ** -0.5, -1)
        x = x + ops.reshape(ops.transpose(scores @ v, (1, 0, 2)), (TOKENS, WIDTH)) @ out
        return x + ops.gelu(x @ up) @ down


def _layer_by_hand(x: jax.Array, weights: Sequence[jax.Array]):
    qkv, out, up, down = weights
    q, k, v = (x @ qkv).reshape(TOKENS, 3, HEADS, -1).transpose(1, 2, 0, 3)
    scores = jax.nn.softmax(q @ k.transpose(0, 2, 1) * (WIDTH // HEADS) ** -0.5)
    x = x + (scores @ v).transpose(1, 0, 2).reshape(TOKENS, WIDTH) @ out
    return x + jax.nn.gelu(x @ up) @ down


def build_table() -> Table:
    """Seconds from nothing to the first result; by hand, the layers are calls of one jitted function."""
    shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    held = [mnist_step.weights(*shapes) for _ in range(LAYERS)]
    data = mnist_step.weights((TOKENS, WIDTH))[0]
    times, results = list[float](), list[np.ndarray]()
    for build in (_build_ours, _build_by_hand):
        started = time.perf_counter()
        results.append(build(data, held))
        times.append(time.perf_counter() - started)
    difference = float(np.abs(results[0] - results[1]).max() / np.abs(results[1]).max())
    table = Table("build and first result", "ours (s)", "by hand (s)", "ours / by hand", "difference")
    cells = (f"{times[0]:.2f}", f"{times[1]:.2f}", f"{times[0] / times[1]:.2f}", f"{difference:.0e}")
    table.add_row(f"popxl transformer, {LAYERS} outlined layers", *cells)
    return table


def _build_ours(data: np.ndarray, held: list[list[np.ndarray]]) -> np.ndarray:
    ir = popxl.Ir()
    with ir.main_graph:
        source = popxl.h2d_stream(data.shape, popxl.float32)
        x = ops.host_load(source)
        layer = _Layer()
        graph = ir.create_graph(layer, x)
        for arrays in held:
            variables = {t: popxl.variable(v) for t, v in zip(layer.inputs, arrays, strict=True)}
            (x,) = ops.call(graph, x, inputs_dict=variables)
        sink = popxl.d2h_stream(x.shape, x.dtype)
        ops.host_store(sink, x)
    with popxl.Session(ir, "ipu_hw") as session:
        return session.run({source: data})[sink]


def _build_by_hand(data: np.ndarray, held: list[list[np.ndarray]]) -> np.ndarray:
    layer = cast("Callable[..., jax.Array]", jax.jit(_layer_by_hand))

    def run(weights: Sequence[Sequence[jax.Array]], x: jax.Array) -> jax.Array:
        for w in weights:
            x = layer(x, w)
        return x

    return np.asarray(cast("jax.Array", jax.jit(run)(held, data)))
