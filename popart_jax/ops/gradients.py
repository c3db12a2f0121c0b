"""Gradients that differ from the derivative of the computed value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import noted, popart_exception
from .arrays import first_extreme
from .kernels import platform
from .two_way import two_way, with_jvp


def attains(x: jax.Array, y: jax.Array, axes: Sequence[int], *, largest: bool) -> jax.Array:
    """Which elements equal their extremum `y` over the axes, which it keeps.

    XLA may have computed the operand again, with other last bits than those that `y` was taken of: then it equals
    none of them. Their first extreme element is always among the results.
    """
    same = x == y
    if not may_be_computed_again(x):
        return same
    order = [*(a for a in range(x.ndim) if a not in axes), *axes]
    turned = x.transpose(order)
    rows = turned.reshape(*(x.shape[a] for a in order[: x.ndim - len(axes)]), -1)
    first = first_extreme(rows, rows.ndim - 1, largest)[..., None]
    hit = (lax.broadcasted_iota(first.dtype, rows.shape, rows.ndim - 1) == first) & (rows == rows)
    return same | hit.reshape(turned.shape).transpose(np.argsort(order))


def pulled_back(fn: Callable[[jax.Array], Any], x: jax.Array, g: Any) -> jax.Array:
    """Gradient for `x`, the only operand of `fn`, given that of its result."""
    return cast("jax.Array", jax.vjp(fn, x)[1](g)[0])


def may_be_computed_again(x: jax.Array) -> bool:
    """Whether XLA may compute the array again where it is read, with other last bits."""
    known = isinstance(x.size, int) and x.size > 0  # sizes may be symbols
    return known and platform() == "cpu" and jnp.issubdtype(x.dtype, jnp.floating)


@with_jvp()
def gradient_of(value: jax.Array, surrogate: jax.Array) -> jax.Array:
    """`value`, with the gradient of `surrogate`."""
    return value


def _tangent(tangent: jax.Array, *_: Any) -> jax.Array:
    return tangent


gradient_of.defjvps(None, _tangent)


@partial(two_way, nondiff_argnums=(1, 2))
def refuse_gradient(x: jax.Array, message: str, note: str) -> jax.Array:
    """The identity; a backward pass through it raises popart_exception with `message` and, unless it is '', a note."""
    return x


def _pass(x: jax.Array, message: str, note: str) -> tuple[jax.Array, None]:
    return x, None


def _refuse(message: str, note: str, saved: Any, g: Any) -> Any:
    raise noted(popart_exception(message), note)


def _push(message: str, note: str, saved: Any, tangents: Any) -> Any:
    return tangents[0]


refuse_gradient.defvjp(_pass, _refuse, _push)
