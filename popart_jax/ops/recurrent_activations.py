"""Activation functions of the recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from ..errors import popart_exception
from .elementwise import accurate_tanh
from .kernels import Computation

Activation = Callable[[jax.Array], jax.Array]
Known = Mapping[str, tuple[Callable[..., jax.Array], tuple[float, ...]]]


@Computation
def logistic(x: jax.Array) -> jax.Array:
    """The gates' sigmoid; its forms may have absolute errors up to the precision at 1."""
    return jax.nn.sigmoid(x)


def _affine(x: jax.Array, alpha: float, beta: float) -> jax.Array:
    return alpha * x + beta


def _leaky_relu(x: jax.Array, alpha: float) -> jax.Array:
    return jnp.where(x < 0, alpha * x, x)


def _thresholded_relu(x: jax.Array, alpha: float) -> jax.Array:
    return jnp.where(x > alpha, x, 0)


def _scaled_tanh(x: jax.Array, alpha: float, beta: float) -> jax.Array:
    return alpha * jnp.tanh(beta * x)


def _hard_sigmoid(x: jax.Array, alpha: float, beta: float) -> jax.Array:
    return jnp.clip(alpha * x + beta, 0, 1)


KNOWN: Known = {
    "relu": (jax.nn.relu, ()),
    "tanh": (jnp.tanh, ()),
    "sigmoid": (logistic, ()),
    "softsign": (jax.nn.soft_sign, ()),
    "softplus": (jax.nn.softplus, ()),
    "gelu": (jax.nn.gelu, ()),
    "swish": (jax.nn.silu, ()),
    "softmax": (jax.nn.softmax, ()),
    "softmaxstable": (jax.nn.softmax, ()),
    "softmaxscaled": (jax.nn.softmax, ()),
    "affine": (_affine, (1.0, 0.0)),
    "leakyrelu": (_leaky_relu, (0.01,)),
    "thresholdedrelu": (_thresholded_relu, (1.0,)),
    "scaledtanh": (_scaled_tanh, (1.0, 1.0)),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5)),
    "elu": (jax.nn.elu, (1.0,)),
}
"""Activations by ONNX's name in lower case, with the defaults of alpha and beta where they have them."""

KNOWN_EXACT: Known = {**KNOWN, "tanh": (accurate_tanh, ()), "sigmoid": (jax.nn.sigmoid, ())}
"""The same, with a tanh and a sigmoid that are slower, but accurate to the last digits."""


def functions_of(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], known: Known
) -> list[Activation]:
    """Activation functions by ONNX name; alphas and betas go in order to those functions that take one.

    An unknown name raises popart_exception.
    """
    pending = (list(alphas), list(betas))
    found: list[Activation] = []
    for name in names:
        if name.lower() not in known:
            raise popart_exception(f"Activation type '{name}' is not supported; known are {sorted(known)}")
        fn, defaults = known[name.lower()]
        values = [queue.pop(0) if queue else default for queue, default in zip(pending, defaults, strict=False)]
        found.append(partial(_apply, fn, tuple(values)))
    return found


def _apply(fn: Callable[..., jax.Array], values: tuple[float, ...], x: jax.Array) -> jax.Array:
    return fn(x, *values)
