"""Gradients that differ from the derivative of the computed value."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from ..errors import popart_exception
from .two_way import two_way


@jax.custom_jvp
def gradient_of(value: jax.Array, surrogate: jax.Array) -> jax.Array:
    """`value`, with the gradient of `surrogate`."""
    return value


gradient_of.defjvps(None, lambda tangent, out, value, surrogate: tangent)


@partial(two_way, nondiff_argnums=(1,))
def refuse_gradient(x: jax.Array, message: str) -> jax.Array:
    """The identity; a backward pass through it raises popart_exception with `message`."""
    return x


def _refuse(message: str, saved: Any, g: Any) -> Any:
    raise popart_exception(message)


refuse_gradient.defvjp(lambda x, message: (x, None), _refuse, lambda message, saved, tangents: tangents[0])
