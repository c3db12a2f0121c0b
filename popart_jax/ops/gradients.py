"""Gradients that differ from the derivative of what is computed."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import popart_exception


@jax.custom_vjp
def gradient_of(value: jax.Array, surrogate: jax.Array) -> jax.Array:
    """`value`, with the gradient of `surrogate`."""
    return value


gradient_of.defvjp(lambda value, surrogate: (value, None), lambda _, g: (jnp.zeros_like(g), g))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def refuse_gradient(x: jax.Array, message: str) -> jax.Array:
    """The identity; differentiating through it raises popart_exception with `message`."""
    return x


def _refuse(message: str, saved: Any, g: Any) -> Any:
    raise popart_exception(message)


refuse_gradient.defvjp(lambda x, message: (x, None), _refuse)
