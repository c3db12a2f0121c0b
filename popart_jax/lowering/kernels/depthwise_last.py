"""Depthwise convolutions (one kernel per channel), channels last: shifted multiply-adds with hand-written gradients.

The weight gradient that JAX derives reads all data once per window element on XLA:CPU; see `depthwise_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from math import prod
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ..._compat.jax import is_symbolic_dim, kept_call
from ...ops.gradients import pulled_back
from ...ops.primitives import add, multiply
from ...ops.two_way import two_way
from ...ops.windows import Window, padded, taps
from .depthwise_weights import sums_in_one, sums_over_places


def with_channels(win: Window, channels: int) -> Window:
    """The window with the trailing channel dimension added."""
    return replace(
        win,
        kernel=(*win.kernel, 1),
        strides=(*win.strides, 1),
        dilations=(*win.dilations, 1),
        pads=(*win.pads, (0, 0)),
        positions=(*win.positions, channels),
        overhang=(*win.overhang, 0),
    )


@partial(two_way, nondiff_argnums=(2,))
def depthwise(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., 1, C)."""
    return _correlated(x, w, win)


def _correlated(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    columns = w.reshape(-1, w.shape[-1])
    products = [multiply(tap, lax.slice_in_dim(columns, i, i + 1)) for i, tap in enumerate(padded_taps(x, win))]
    return reduce(add, products)


def padded_taps(x: jax.Array, win: Window) -> list[jax.Array]:
    """For each element of the kernel the data that it meets, from x (N, ..., C)."""
    return taps(padded(x, win), with_channels(win, x.shape[-1]))


def _forward(x: jax.Array, w: jax.Array, win: Window) -> tuple[Any, tuple[jax.Array, jax.Array]]:
    return depthwise(x, w, win), (x, w)


def _backward(win: Window, saved: Any, g: jax.Array) -> tuple[jax.Array, Any]:
    x, w = saved
    return _data_gradient(x, w, g, win), _weight_gradient(x, g, win).reshape(w.shape)


def _push(win: Window, saved: Any, tangents: Any) -> jax.Array:
    (x, w), (of_x, of_w) = saved, tangents
    return _correlated(of_x, w, win) + _correlated(x, of_w, win)


depthwise.defvjp(_forward, _backward, _push)


def _data_gradient(x: jax.Array, w: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    """Without strides: the output gradient correlated with the flipped window; otherwise JAX's gradient."""
    around = [(r - 1 - lo, r - 1 - hi) for r, (lo, hi) in zip(win.reach, win.pads, strict=True)]
    if set(win.strides) != {1} or min(map(min, around)) < 0:
        return pulled_back(lambda x: _correlated(x, w, win), x, g)
    turned = replace(win, pads=tuple(around), positions=x.shape[1:-1])
    return _correlated(g, jnp.flip(w, range(w.ndim - 2)), turned)


@partial(two_way, nondiff_argnums=(2,))
def _weight_gradient(x: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    """For each window element and channel, the sum of products of the data under it with the output gradient."""
    known = not any(map(is_symbolic_dim, (*x.shape, *g.shape)))
    if known and g.size and prod(win.kernel) > 1 and max(win.positions) > 1:
        return kept_call(partial(_sums, form=sums_over_places, win=win), x, g)
    return _sums(x, g, sums_in_one, win)


def _sums(x: jax.Array, g: jax.Array, form: Callable[..., jax.Array], win: Window) -> jax.Array:
    return form(padded(x, win), g, with_channels(win, x.shape[-1]))


def _derived(x: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    return jnp.stack([(tap * g).sum(range(g.ndim - 1)) for tap in padded_taps(x, win)])


def _second_forward(x: jax.Array, g: jax.Array, win: Window) -> tuple[jax.Array, Any]:
    return _weight_gradient(x, g, win), (x, g)


def _second_backward(win: Window, saved: Any, ct: jax.Array) -> tuple[jax.Array, jax.Array]:
    def derived(x: jax.Array, g: jax.Array) -> jax.Array:
        return _derived(x, g, win)

    return cast("tuple[jax.Array, jax.Array]", jax.vjp(derived, *saved)[1](ct))


def _second_push(win: Window, saved: Any, tangents: Any) -> jax.Array:
    return _derived(tangents[0], saved[1], win) + _derived(saved[0], tangents[1], win)


_weight_gradient.defvjp(_second_forward, _second_backward, _second_push)
