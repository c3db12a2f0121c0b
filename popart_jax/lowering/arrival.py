"""Values that are read only when others have arrived: XLA must not merge what is made of them with what was before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ..ops.kernels import platform


def after(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The values, from the arrival of the others on.

    XLA:CPU drops barriers. There each value passes a choice between itself and another one, which reads the others and
    always takes the first: a word with its lowest bit set is not 0. XLA's passes over the graph don't know that, so
    that what is computed from the values waits; LLVM does, so that the choice costs a copy. Values of less than 16 bits
    are returned as they are, and on the CPU only floating-point arrays count as others.
    """
    if not values:
        return []
    if platform() != "cpu":
        return list(lax.optimization_barrier((list(values), list(others)))[0])
    words = [word for g in others if (word := _first_word(g)) is not None]
    if not words:
        return list(values)
    always = jnp.stack([(word | 1) != 0 for word in words]).all()
    return [_chosen(always, x) for x in values]


def _first_word(x: Any) -> jax.Array | None:
    """The bits of the first element of a floating-point array."""
    words = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}
    kind = jnp.result_type(x)
    if not jnp.size(x) or not jnp.issubdtype(kind, jnp.floating) or kind.itemsize not in words:
        return None
    return lax.bitcast_convert_type(jnp.ravel(x)[0], words[kind.itemsize]).astype(jnp.uint32)


def _chosen(always: jax.Array, x: Any) -> Any:
    kind = jax.typeof(x).dtype
    if jnp.issubdtype(kind, jax.dtypes.prng_key):
        words = _chosen(always, jax.random.key_data(x))
        return cast("jax.Array", jax.random.wrap_key_data(words, impl=jax.random.key_impl(x)))
    if jnp.issubdtype(kind, jnp.floating) and kind.itemsize > 1:
        return jnp.where(always, x, -x)
    if jnp.issubdtype(kind, jnp.integer) or kind == jnp.bool_:
        return jnp.where(always, x, jnp.invert(x))
    return x
