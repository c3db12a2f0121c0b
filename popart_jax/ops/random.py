"""Random numbers: every node has a key of its own; a `seed` attribute fixes the numbers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from .arrays import Array, device_dtype, dtype_name
from .operator import RANDOM, REFUSES_GRADIENT, PopxlClass, operator
from .registry import Key, PopartMode, lowers


def _key(key: jax.Array, seed: float | None, popart: bool = False) -> jax.Array:
    if popart and seed is not None:
        raise popart_exception("Optional seed attribute is not supported. Use session::setRandomSeed instead.")
    return key if seed is None else jax.random.key(struct.unpack("<I", struct.pack("<f", seed))[0])


_DOUBLE = 11


def _float(dtype: int | None, like: Array | None = None, popart: bool = False) -> np.dtype:
    if popart and dtype is None and like is not None and like.dtype not in (np.float32, np.float16):
        raise popart_exception(f"Unsupported data type requested: {dtype_name(like)}")
    if popart and dtype == _DOUBLE:
        raise popart_exception("The data type DOUBLE is not supported in Poplar")
    if popart and like is not None and jnp.issubdtype(like.dtype, jnp.floating):
        return like.dtype  # PopART makes RandomNormal or RandomUniform of it and looks at the input alone
    if dtype is not None:
        return device_dtype(dtype)
    assert like is not None
    if not jnp.issubdtype(like.dtype, jnp.floating):
        raise popart_exception(f"random numbers are floats, the input is {dtype_name(like)}; give the attribute dtype")
    return like.dtype


def _normal(key: jax.Array, shape: Sequence[int], kind: np.dtype, mean: float, scale: float) -> Array:
    return jax.random.normal(key, tuple(shape), kind) * np.asarray(scale, kind) + np.asarray(mean, kind)


operator("RandomNormal", RANDOM, gradients=(), popxl=PopxlClass("RandomNormalOp"))


@lowers("RandomNormal", 1)
def random_normal(
    *, shape: Sequence[int], mean: float = 0.0, scale: float = 1.0, dtype: int = 1, seed: float | None = None,
    key: Key, popart: PopartMode = False,
) -> Array:  # fmt: skip
    return _normal(_key(key, seed, popart), shape, _float(dtype, None, popart), mean, scale)


operator("RandomNormalLike", REFUSES_GRADIENT, gradients=())


@lowers("RandomNormalLike", 1)
def random_normal_like(
    x: Array, /, *, mean: float = 0.0, scale: float = 1.0, dtype: int | None = None, seed: float | None = None,
    key: Key, popart: PopartMode = False,
) -> Array:  # fmt: skip
    return _normal(_key(key, seed, popart), np.shape(x), _float(dtype, x, popart), mean, scale)


operator("RandomUniform", RANDOM, gradients=(), popxl=PopxlClass("RandomUniformOp"))


@lowers("RandomUniform", 1)
def random_uniform(
    *, shape: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: int = 1, seed: float | None = None,
    key: Key, popart: PopartMode = False,
) -> Array:  # fmt: skip
    return jax.random.uniform(_key(key, seed, popart), tuple(shape), _float(dtype, None, popart), low, high)


operator("RandomUniformLike", REFUSES_GRADIENT, gradients=())


@lowers("RandomUniformLike", 1)
def random_uniform_like(
    x: Array, /, *, low: float = 0.0, high: float = 1.0, dtype: int | None = None, seed: float | None = None,
    key: Key, popart: PopartMode = False,
) -> Array:  # fmt: skip
    return jax.random.uniform(_key(key, seed, popart), np.shape(x), _float(dtype, x, popart), low, high)


@lowers("Bernoulli", 15)
def bernoulli(p: Array, /, *, dtype: int | None = None, seed: float | None = None, key: Key) -> Array:
    kind = p.dtype if dtype is None else device_dtype(dtype)
    return jax.random.bernoulli(_key(key, seed), p).astype(kind)


operator("Multinomial", ranks="input 2")


@lowers("Multinomial", 7)
def multinomial(
    logits: Array, /, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, key: Key
) -> Array:
    """Class numbers drawn from unnormalised log-probabilities, with replacement."""
    drawn = jax.random.categorical(_key(key, seed), jnp.asarray(logits)[:, None, :], shape=(len(logits), sample_size))
    return drawn.astype(device_dtype(dtype))
