"""Random numbers: every node has its own key; a `seed` attribute fixes the numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ..errors import OpError, popart_exception, until_compiled
from ..limits import limits
from .arrays import Array, device_dtype, dtype_name
from .operator import RANDOM, as_onnx, operator
from .registry import Key, lowers


def _key(key: jax.Array, seed: float | None) -> jax.Array:
    return key if seed is None else jax.random.key(struct.unpack("<I", struct.pack("<f", seed))[0])


def _float(dtype: int | None, like: Array | None = None) -> np.dtype:
    if dtype is not None:
        return device_dtype(dtype)
    assert like is not None
    if not jnp.issubdtype(like.dtype, jnp.floating):
        raise popart_exception(f"random numbers are floats, the input is {dtype_name(like)}; give the attribute dtype")
    return like.dtype


def _normal(key: jax.Array, shape: Sequence[int], kind: np.dtype, mean: float, scale: float) -> Array:
    return jax.random.normal(key, tuple(shape), kind) * np.asarray(scale, kind) + np.asarray(mean, kind)


operator("RandomNormal", RANDOM, gradients=(), popxl=as_onnx())


@lowers("RandomNormal", 1)
def random_normal(
    *, shape: Sequence[int], mean: float = 0.0, scale: float = 1.0, dtype: int = 1, seed: float | None = None,
    key: Key,
) -> Array:  # fmt: skip
    return _normal(_key(key, seed), shape, _float(dtype), mean, scale)


operator("RandomNormalLike", RANDOM, gradients=(), popxl=as_onnx(), removed_by="RandomNormalLikeOpPattern")


@lowers("RandomNormalLike", 1)
def random_normal_like(
    x: Array, /, *, mean: float = 0.0, scale: float = 1.0, dtype: int | None = None, seed: float | None = None,
    key: Key,
) -> Array:  # fmt: skip
    return _normal(_key(key, seed), np.shape(x), _float(dtype, x), mean, scale)


operator("RandomUniform", RANDOM, gradients=(), popxl=as_onnx())


@lowers("RandomUniform", 1)
def random_uniform(
    *, shape: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: int = 1, seed: float | None = None,
    key: Key,
) -> Array:  # fmt: skip
    return jax.random.uniform(_key(key, seed), tuple(shape), _float(dtype), low, high)


operator("RandomUniformLike", RANDOM, gradients=(), popxl=as_onnx(), removed_by="RandomUniformLikeOpPattern")


@lowers("RandomUniformLike", 1)
def random_uniform_like(
    x: Array, /, *, low: float = 0.0, high: float = 1.0, dtype: int | None = None, seed: float | None = None,
    key: Key,
) -> Array:  # fmt: skip
    return jax.random.uniform(_key(key, seed), np.shape(x), _float(dtype, x), low, high)


def _popart_rule(op: str, draw: Callable[..., Array]) -> None:
    """Register PopART's rule: no seeds, no doubles, and the type of a floating input takes precedence over `dtype`."""

    def drawn(*like: Array, seed: float | None = None, **rest: Any) -> Array:
        if seed is not None:
            raise OpError("{opid}: Optional seed attribute is not supported. Use session::setRandomSeed instead.", op)
        asked = ir.DataType(rest["dtype"]).name if "dtype" in rest else next((dtype_name(x) for x in like), "FLOAT")
        if asked == "DOUBLE" and not like:
            error = popart_exception("The data type DOUBLE is not supported in Poplar")
            raise until_compiled(error, jnp.zeros(rest["shape"], device_dtype("float64")))
        if asked not in ("FLOAT", "FLOAT16"):
            raise OpError(f"{{opid}} : Unsupported data type requested: {asked}", op)
        if any(jnp.issubdtype(x.dtype, jnp.floating) for x in like):
            rest.pop("dtype", None)
        return draw(*like, **rest)

    lowers(op, popart=True, like=draw)(drawn)


_popart_rule("RandomNormal", random_normal)
_popart_rule("RandomNormalLike", random_normal_like)
_popart_rule("RandomUniform", random_uniform)
_popart_rule("RandomUniformLike", random_uniform_like)


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
    limits.check_size((*logits.shape, sample_size), 4, "Multinomial: a number for each class and sample")
    drawn = jax.random.categorical(_key(key, seed), jnp.asarray(logits)[:, None, :], shape=(len(logits), sample_size))
    return drawn.astype(device_dtype(dtype))
