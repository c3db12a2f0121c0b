"""Stochastic rounding: half precision results are rounded up or down at random, so that the expected error is zero.

An operator computes in single precision on half operands, and its results are rounded once (the states inside a
recurrent operator are not rounded). Its gradient does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..ops.arrays import as_results
from ..ops.operator import Trait
from ..ops.registry import facts
from ..ops.two_way import with_vjp

HALF = np.dtype(np.float16)
_DROPPED_BITS = 13  # of single precision's 23, half keeps 10
_LEAST_NORMAL, _SPACING, _LARGEST = 2.0**-14, 2.0**-24, 65504.0
_BACKWARD = 1 << 16  # offset that gives the backward pass other random numbers than the forward pass


def to_half(x: Any, key: Any) -> jax.Array:
    """Round to one of the two neighbours in half precision; the probability of each falls with its distance."""
    x = jnp.asarray(x, jnp.float32)
    bits = jax.random.bits(key, x.shape, jnp.uint32)
    kept = (lax.bitcast_convert_type(x, jnp.uint32) + (bits >> (32 - _DROPPED_BITS))) >> _DROPPED_BITS << _DROPPED_BITS
    fraction = (bits >> 8).astype(jnp.float32) * 2.0**-24
    subnormal = jnp.copysign(jnp.floor(jnp.abs(x) / _SPACING + fraction) * _SPACING, x)
    size = jnp.abs(x)
    rounded = jnp.where(size < _LEAST_NORMAL, subnormal, lax.bitcast_convert_type(kept, jnp.float32))
    return jnp.where(size < _LARGEST, rounded, x).astype(HALF)


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
    results = of([_widen(operands[i], jax.random.fold_in(key, _BACKWARD + i)) for i in halves])
    if not isinstance(results, tuple):
        return _fitting(results, usual, key)
    pairs = enumerate(zip(as_results(results), usual, strict=True))
    return tuple(_fitting(r, u, jax.random.fold_in(key, i)) for i, (r, u) in pairs)


def _fitting(result: Any, usual: Any, key: Any) -> Any:
    return _narrow(result, key) if usual.dtype == HALF != result.dtype else result
