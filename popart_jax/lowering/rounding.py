"""Stochastic rounding: half precision results are rounded up or down at random, so that the expected error is zero.

An operator computes in single precision on half operands, and its results are rounded once (the states inside a
recurrent operator are not rounded). Its gradient does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._compat.jax import one_kernel
from ..ops.arrays import as_results
from ..ops.operator import Trait
from ..ops.registry import facts
from ..ops.two_way import with_vjp

HALF = np.dtype(np.float16)
_LARGEST = 65504.0
# Fields of a single precision number: the exponent, that of half's least normal number, half's ten bits of mantissa.
_EXPONENT, _LEAST_EXPONENT, _KEPT = (np.uint32(x << 23) for x in (255, 127 - 14, 10))
_EXPONENT_OF_INVERSE = np.uint32((127 + 10 + 127) << 23)


def to_half(x: Any, key: Any) -> jax.Array:
    """Round to one of the two neighbours in half precision; the probability of each falls with its distance.

    The random numbers follow from the key, the place in the array and the value, so that a key serves a whole step:
    only equal values in equal places are rounded alike.
    """
    return cast("jax.Array", _to_half(jnp.asarray(x, jnp.float32), key))


@jax.jit
def _to_half(x: Any, key: Any) -> jax.Array:
    first, second = jax.random.key_data(key)[:2]
    return one_kernel(_rounded, x, first, second)


def _rounded(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    place = lax.iota(jnp.uint32, x.size).reshape(x.shape)
    bits = _mixed(_mixed(place ^ first) ^ second ^ lax.bitcast_convert_type(x, jnp.uint32))
    size = lax.abs(x)
    exponent = lax.max(lax.bitcast_convert_type(size, jnp.uint32) & _EXPONENT, _LEAST_EXPONENT)
    places = size * lax.bitcast_convert_type(_EXPONENT_OF_INVERSE - exponent, jnp.float32)
    below = lax.floor(places)
    rounds_up = (bits >> 8).astype(jnp.float32) * 2.0**-24 < places - below
    spacing = lax.bitcast_convert_type(exponent - _KEPT, jnp.float32)
    rounded = (below + rounds_up.astype(jnp.float32)) * spacing * lax.sign(x)
    return lax.select(size < _LARGEST, rounded, x).astype(HALF)


def _mixed(x: jax.Array) -> jax.Array:
    """A hash of 32 bits (Wellons, "Prospecting for hash functions", 2018)."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


@with_vjp()
def _widen(x: Any, key: Any) -> jax.Array:
    return x.astype(jnp.float32)


def _widen_forward(x: Any, key: Any) -> tuple[jax.Array, Any]:
    return x.astype(jnp.float32), key


def _widen_backward(key: Any, g: Any) -> tuple[jax.Array, None]:
    return to_half(g, key), None


_widen.defvjp(_widen_forward, _widen_backward)


@with_vjp()
def _narrow(x: Any, key: Any) -> jax.Array:
    return to_half(x, key)


def _narrow_forward(x: Any, key: Any) -> tuple[jax.Array, None]:
    return to_half(x, key), None


def _narrow_backward(_: None, g: Any) -> tuple[jax.Array, None]:
    return g.astype(jnp.float32), None


_narrow.defvjp(_narrow_forward, _narrow_backward)


def applies(op_type: str, operands: Sequence[Any]) -> bool:
    """Whether stochastic rounding applies to a node, in a session that asks for it."""
    return (op_type == "Cast" or any(map(_is_half, operands))) and facts(op_type).has(Trait.ROUNDS)


def _is_half(x: Any) -> bool:
    return getattr(x, "dtype", None) == HALF


def in_single_precision(fn: Callable[..., Any], operands: Sequence[Any], kwargs: Mapping[str, Any], key: Any) -> Any:
    """The results of `fn`, computed in single precision and rounded stochastically where they would be half."""
    halves = [i for i, x in enumerate(operands) if _is_half(x)]

    def of(values: Sequence[Any]) -> Any:
        replaced = dict(zip(halves, values, strict=True))
        return fn(*(replaced.get(i, x) for i, x in enumerate(operands)), **kwargs)

    usual = jax.eval_shape(of, [operands[i] for i in halves])
    if not halves:  # a cast, to half or another type
        return _narrow(operands[0], key) if usual.dtype == HALF and operands[0].dtype == np.float32 else of(())
    results = of([_widen(operands[i], key) for i in halves])
    if not isinstance(results, tuple):
        return _fitting(results, usual, key)
    return tuple(_fitting(r, u, key) for r, u in zip(as_results(results), usual, strict=True))


def _fitting(result: Any, usual: Any, key: Any) -> Any:
    return _narrow(result, key) if usual.dtype == HALF != result.dtype else result
