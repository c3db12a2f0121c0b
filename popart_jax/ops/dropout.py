"""Dropout in all its versions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from .._compat.jax import Tracer, one_kernel
from ..errors import OpError
from .arrays import Array
from .operator import ELEMENTWISE, RANDOM, as_onnx, operator
from .registry import Context, Key, Static, Training, lowers


def check_ratio(ratio: float) -> float:
    """The ratio itself; popart_exception outside [0, 1)."""
    if not 0 <= ratio < 1:
        raise OpError(
            f"{{opid}} ratio value {ratio:g} is not valid. Please use a value in the interval [0,1)", "Dropout"
        )
    return ratio


def drop(x: Array, key: jax.Array, ratio: Any, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Zero elements with probability `ratio`, scale the kept ones by 1/(1-ratio); returns result and mask."""
    mask = kept_places(key, 1 - ratio, shape)
    return keep(x, mask, ratio), mask


def kept_places(key: jax.Array, share: Any, shape: Sequence[int]) -> jax.Array:
    """True at random places, in this share of them."""
    share = jnp.asarray(share, jnp.float32)  # otherwise x64 would draw 64 bits, which the caller's jit can't lower
    return cast("jax.Array", _kept_places(key, share, tuple(shape)))


@partial(jax.jit, static_argnums=2)
def _kept_places(key: Any, share: Any, shape: tuple[int, ...]) -> jax.Array:
    return one_kernel(partial(jax.random.bernoulli, shape=shape), key, share)


def keep(x: Array, mask: Any, ratio: Any) -> jax.Array:
    """The masked elements, scaled by 1/(1-ratio); zeros elsewhere."""
    return jnp.where(mask, x * jnp.asarray(1 / (1 - ratio), x.dtype), jnp.zeros((), x.dtype))


operator(
    "Dropout",
    ELEMENTWISE | RANDOM,
    gradients="g seed",
    ranks="ratio 0-1 training_mode 0-1",
    parameters={1: "ratio"},
    popxl=as_onnx(10),
)


@lowers("Dropout", 10)
def dropout_10(x: Array, /, *, ratio: float = 0.5, key: Key, training: Training = False) -> tuple[Array, Array]:
    if not training or check_ratio(ratio) == 0:
        return x, jnp.ones(x.shape, bool)
    return drop(x, key, ratio, x.shape)


@lowers("Dropout", 7)
def dropout_7(x: Array, /, *, ratio: float = 0.5, key: Key, training: Training = False) -> tuple[Array, Array]:
    """The mask has the type of the data."""
    y, mask = dropout_10(x, ratio=ratio, key=key, training=training)
    return y, mask.astype(x.dtype)


@lowers("Dropout", 1, 6)
def dropout_1(
    x: Array, /, *, ratio: float = 0.5, is_test: int = 0, key: Key, training: Training = False
) -> tuple[Array, Array]:
    return dropout_7(x, ratio=ratio, key=key, training=training and not is_test)


@lowers("Dropout", 1, popart=True, like=dropout_1)
def popart_dropout_1(
    x: Array, /, *, ratio: float = 0.5, is_test: int = 0, training: Training = False, **rest: Any
) -> tuple[Array, Array]:
    """The ratio is checked even if nothing is dropped; the mask is boolean."""
    return dropout_10(x, ratio=check_ratio(ratio), training=training and not is_test, **rest)


@lowers("Dropout", 7, popart=True, like=dropout_10)
def popart_dropout_7(x: Array, /, *, ratio: float = 0.5, **rest: Any) -> tuple[Array, Array]:
    """The ratio is checked even if nothing is dropped."""
    return dropout_10(x, ratio=check_ratio(ratio), **rest)


@lowers("Dropout", 12, popart=True)
@lowers("Dropout", 12, 13, 22)
def dropout_12(
    x: Array, ratio: Array | None = None, training_mode: Static = None, /, *, seed: float | None = None, key: Key,
    training: Training = False, walk: Context,
) -> tuple[Array, Array]:  # fmt: skip
    """The `training_mode` input decides where it is given; otherwise whether the session trains."""
    rate = 0.5 if ratio is None else ratio if isinstance(ratio, Tracer) else check_ratio(float(ratio))
    active = training if training_mode is None else bool(training_mode)
    if not active or (isinstance(rate, float) and rate == 0):
        return x, jnp.ones(x.shape, bool)
    if seed is not None and walk.settings.key is None:  # the numbers of ONNX's reference evaluator
        mask = np.random.RandomState(int(seed)).uniform(size=x.shape) >= rate
        return keep(x, mask, rate), mask
    return drop(x, key if seed is None else jax.random.fold_in(key, int(seed)), rate, x.shape)
