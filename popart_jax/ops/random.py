"""Random numbers: every node has a key of its own; a `seed` attribute fixes the numbers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .arrays import Array, device_dtype
from .registry import Key, lowers


def _key(key: jax.Array, seed: float | None) -> jax.Array:
    return key if seed is None else jax.random.key(struct.unpack("<I", struct.pack("<f", seed))[0])


def _float(dtype: int | None, like: Array | None = None) -> np.dtype:
    if dtype is not None:
        return device_dtype(dtype)
    assert like is not None
    return like.dtype if jnp.issubdtype(like.dtype, jnp.floating) else np.dtype(np.float32)


@lowers("RandomNormal", 1)
def random_normal(
    *, shape: Sequence[int], mean: float = 0.0, scale: float = 1.0, dtype: int = 1, seed: float | None = None, key: Key
) -> Array:
    kind = _float(dtype)
    return jax.random.normal(_key(key, seed), tuple(shape), kind) * np.asarray(scale, kind) + np.asarray(mean, kind)


@lowers("RandomNormalLike", 1)
def random_normal_like(
    x: Array, /, *, mean: float = 0.0, scale: float = 1.0, dtype: int | None = None, seed: float | None = None, key: Key
) -> Array:
    kind = _float(dtype, x)
    return jax.random.normal(_key(key, seed), np.shape(x), kind) * np.asarray(scale, kind) + np.asarray(mean, kind)


@lowers("RandomUniform", 1)
def random_uniform(
    *, shape: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: int = 1, seed: float | None = None, key: Key
) -> Array:
    return jax.random.uniform(_key(key, seed), tuple(shape), _float(dtype), low, high)


@lowers("RandomUniformLike", 1)
def random_uniform_like(
    x: Array, /, *, low: float = 0.0, high: float = 1.0, dtype: int | None = None, seed: float | None = None, key: Key
) -> Array:
    return jax.random.uniform(_key(key, seed), np.shape(x), _float(dtype, x), low, high)


@lowers("Bernoulli", 15)
def bernoulli(p: Array, /, *, dtype: int | None = None, seed: float | None = None, key: Key) -> Array:
    kind = p.dtype if dtype is None else device_dtype(dtype)
    return jax.random.bernoulli(_key(key, seed), p).astype(kind)


@lowers("Multinomial", 7)
def multinomial(
    logits: Array, /, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, key: Key
) -> Array:
    """Class numbers drawn from unnormalised log-probabilities, with replacement."""
    drawn = jax.random.categorical(_key(key, seed), jnp.asarray(logits)[:, None, :], shape=(len(logits), sample_size))
    return drawn.astype(device_dtype(dtype))
