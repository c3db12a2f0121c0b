"""Domain ai.onnx.preview.training: Gradient and the optimizers Adagrad, Adam and Momentum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from .arrays import Array
from .registry import Context, NodeRef, lowers

TRAINING = "ai.onnx.preview.training"


@lowers("Gradient", 1, domain=TRAINING)
def gradient(
    *args: Array, xs: Sequence[str], y: str, zs: Sequence[str] = (), node: NodeRef, walk: Context
) -> tuple[Array, ...]:
    """Gradient of the sum of tensor `y` of the same graph in `xs`, at the given values of `xs` and `zs`."""
    if len(args) != len(xs) + len(zs):
        raise popart_exception(f"Gradient: {len(args)} inputs for xs {list(xs)} and zs {list(zs)}")

    def target(varied: Sequence[Array]) -> Array:
        bound = dict(zip((*xs, *zs), (*varied, *args[len(xs) :]), strict=True))
        return jnp.sum(walk.recompute(node.graph, y, bound))

    return tuple(cast("list[jax.Array]", jax.grad(target)([jnp.asarray(x) for x in args[: len(xs)]])))


def _per_tensor(update: Callable[..., tuple[Array, ...]], tensors: Sequence[Array], states: int) -> tuple[Array, ...]:
    """Apply `update` to (x, gradient, state...) of each tensor; results are grouped as the inputs are."""
    if len(tensors) % (2 + states):
        raise popart_exception(
            f"{len(tensors)} tensors after the rate and the step are no groups of {2 + states}: "
            f"the tensors, their gradients, and {states} state(s) each"
        )
    count = len(tensors) // (2 + states)
    columns = [tensors[i * count : (i + 1) * count] for i in range(2 + states)]
    rows = [update(*row) for row in zip(*columns, strict=True)]
    return tuple(
        new.astype(old.dtype) for group in zip(*rows, strict=True) for new, old in zip(group, tensors, strict=False)
    )


def _corrected(rate: Array, step: Array, alpha: float, beta: float) -> Array:
    passed = jnp.maximum(step, 1).astype(rate.dtype)
    return jnp.where(step > 0, rate * jnp.sqrt(1 - beta**passed) / (1 - alpha**passed), rate)


@lowers("Adagrad", 1, domain=TRAINING)
def adagrad(
    rate: Array,
    step: Array,
    /,
    *tensors: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    current = rate / (1 + step.astype(rate.dtype) * np.float32(decay_factor))

    def update(x: Array, g: Array, h: Array) -> tuple[Array, ...]:
        g = norm_coefficient * x + g
        h = h + g * g
        return x - current * g / (jnp.sqrt(h) + epsilon), h

    return _per_tensor(update, tensors, 1)


@lowers("Adam", 1, domain=TRAINING)
def adam(
    rate: Array, step: Array, /, *tensors: Array, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:  # fmt: skip
    current = _corrected(rate, step, alpha, beta)

    def update(x: Array, g: Array, v: Array, h: Array) -> tuple[Array, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        moved = x - current * v / (jnp.sqrt(h) + epsilon)
        return (1 - norm_coefficient_post) * moved, v, h

    return _per_tensor(update, tensors, 2)


@lowers("Momentum", 1, domain=TRAINING)
def momentum(
    rate: Array, step: Array, /, *tensors: Array, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Array, ...]:
    if mode not in ("standard", "nesterov"):
        raise popart_exception(f"Momentum: mode must be standard or nesterov, got {mode!r}")

    def update(x: Array, g: Array, v: Array) -> tuple[Array, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + jnp.where(step > 0, jnp.asarray(beta, x.dtype), jnp.ones((), x.dtype)) * g
        return x - rate * (g + alpha * v if mode == "nesterov" else v), v

    return _per_tensor(update, tensors, 1)
