"""Activation functions of the recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import popart_exception
from .kernels import Computation

Activation = Callable[[jax.Array], jax.Array]
Known = Mapping[str, tuple[Callable[..., jax.Array], tuple[float, ...]]]


@Computation
def logistic(x: jax.Array) -> jax.Array:
    """The gates' sigmoid, to the accuracy of 1."""
    return jax.nn.sigmoid(x)


@jax.custom_jvp
def accurate_tanh(x: jax.Array) -> jax.Array:
    """Tanh to one unit in the last place where it saturates.

    XLA:CPU's is off by four units there, which shows in its slope, 1 - y^2 (supplement 5.12). Source: the definition,
    whose small term alone is rounded coarsely.
    """
    return jnp.where(jnp.abs(x) > 1, jnp.sign(x) * (1 - 2 / (jnp.exp(2 * jnp.abs(x)) + 1)), jnp.tanh(x))


@accurate_tanh.defjvp
def _accurate_tanh_jvp(primals: Any, tangents: Any) -> Any:
    y = accurate_tanh(*primals)
    return y, tangents[0] * (1 - y * y)


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
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "leakyrelu": (lambda x, alpha: jnp.where(x < 0, alpha * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, alpha: jnp.where(x > alpha, x, 0), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * jnp.tanh(beta * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, alpha: jax.nn.elu(x, alpha), (1.0,)),
}
"""Activations by ONNX's name in lower case, with the defaults of alpha and beta where they have them."""

KNOWN_EXACT: Known = {**KNOWN, "tanh": (accurate_tanh, ())}
"""The same, with the tanh that is exact to the last place."""


def functions_of(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], known: Known
) -> list[Activation]:
    """Activation functions by ONNX name; alphas and betas go in order to those functions that take one.

    Raises
    ------
    popart_exception
        Unknown name.
    """
    pending = (list(alphas), list(betas))
    found = []
    for name in names:
        if name.lower() not in known:
            raise popart_exception(f"Activation type '{name}' is not supported; known are {sorted(known)}")
        fn, defaults = known[name.lower()]
        values = [queue.pop(0) if queue else default for queue, default in zip(pending, defaults, strict=False)]
        found.append(partial(_apply, fn, tuple(values)))
    return found


def _apply(fn: Callable[..., jax.Array], values: tuple[float, ...], x: jax.Array) -> jax.Array:
    return fn(x, *values)
