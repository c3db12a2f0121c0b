"""One training step of two dense layers on MNIST's sizes: data, weights, and the step written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

BATCH, SIZES, RATE = 64, (784, 512, 10), 0.05


def weights(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Random arrays of these shapes."""
    rng = np.random.default_rng(0)
    return [(rng.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for s in shapes]


def data() -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images, labels, and first weights."""
    rng = np.random.default_rng(1)
    images = rng.normal(size=(BATCH, SIZES[0])).astype(np.float32)
    labels = rng.integers(0, SIZES[2], BATCH).astype(np.int32)
    return images, labels, weights((SIZES[0], SIZES[1]), (SIZES[1],), (SIZES[1], SIZES[2]))


def by_hand(images: np.ndarray, labels: np.ndarray, held: list[np.ndarray]) -> Callable[[], np.ndarray]:
    """The training step, hand-written in JAX, as a function that returns the loss."""

    def loss_of(weights: list[jax.Array], x: jax.Array, y: jax.Array):
        w1, b1, w2 = weights
        logits = jax.nn.relu(x @ w1 + b1) @ w2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def step(weights: list[jax.Array], x: jax.Array, y: jax.Array):
        loss, grads = jax.value_and_grad(loss_of)(weights, x, y)
        return [w - RATE * g for w, g in zip(weights, grads, strict=True)], loss

    run = cast("Callable[..., tuple[list[jax.Array], jax.Array]]", jax.jit(step, donate_argnums=0))
    state = [[jnp.array(v) for v in held]]

    def call() -> np.ndarray:
        state[0], loss = run(state[0], images, labels)
        return np.asarray(loss)

    return call
