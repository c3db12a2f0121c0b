"""JAX primitives for traced operands, in place of `jax.numpy` functions that reduce to them.

Each of those functions is jitted: for every new shape JAX traces it, which takes 0.5 to 0.8 ms (jax 0.10); a primitive
takes 0.02 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._compat.jax import Tracer
from .arrays import Array, namespace
from .folding import spread
from .kernels import platform, weights_come_as_stored


def of_two(primitive: Callable[[Any, Any], Any], name: str) -> Callable[[Array, Array], Any]:
    """The function `name` of NumPy or `jax.numpy` on two operands; `primitive` if they are traced numbers."""

    def compute(x: Array, y: Array) -> Any:
        if not (isinstance(x, Tracer) or isinstance(y, Tracer)) or x.dtype != y.dtype or not _is_number(x):
            return getattr(namespace(x, y), name)(x, y)
        ranks = {np.ndim(v) for v in (x, y)} - {0}
        if len(ranks) > 1:
            x, y = (_with_rank(v, max(ranks)) for v in (x, y))
        if ranks and np.shape(x) != np.shape(y) and np.ndim(x) == np.ndim(y):
            x, y = spread(x, y.shape), spread(y, x.shape)
        return primitive(x, y)

    return compute


def of_one(primitive: Callable[[Any], Any], general: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """`general` of `jax.numpy`; `primitive` if the operand is a traced float."""

    def compute(x: Array) -> Array:
        traced = isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.floating)
        return (primitive if traced else general)(x)

    return compute


def _is_number(x: Array) -> bool:
    return x.dtype.kind in "iuf" or jnp.issubdtype(x.dtype, jnp.floating)


def _with_rank(x: Array, rank: int) -> Array:
    """Add leading dimensions of size 1, except to scalars, which primitives accept."""
    return lax.expand_dims(x, range(rank - x.ndim)) if x.ndim else x


add, subtract, multiply = of_two(lax.add, "add"), of_two(lax.sub, "subtract"), of_two(lax.mul, "multiply")
divide = of_two(lax.div, "divide")
"""Of floats."""
sqrt, log, exp, tanh = (
    of_one(lax.sqrt, jnp.sqrt), of_one(lax.log, jnp.log), of_one(lax.exp, jnp.exp), of_one(lax.tanh, jnp.tanh)
)  # fmt: skip
floor, ceil, sigmoid = (
    of_one(lax.floor, jnp.floor), of_one(lax.ceil, jnp.ceil), of_one(lax.logistic, jax.nn.sigmoid)
)  # fmt: skip
minimum, maximum = of_two(lax.min, "minimum"), of_two(lax.max, "maximum")


def times_turned(x: Any, y: Any) -> jax.Array:
    """x y' for a matrix y, which XLA:CPU then reads as it is."""
    return lax.dot_general(x, y, (((x.ndim - 1,), (1,)), ((), ())))


def times_stored(x: Any, weights: Any) -> jax.Array:
    """x w' for a matrix x and weights as they are stored.

    Of ``x @ w.T`` XLA:CPU turns w first where x has one row: 111 ms in place of 4.6 for 9,216 by 4,096 numbers. Where
    that is done once, when weights are loaded, programs for one row and for many read the same weights.
    """
    if platform() == "cpu" and weights_come_as_stored() and x.dtype == weights.dtype:
        return times_turned(x, weights)
    return jnp.matmul(x, weights.T)


def times_swapped(x: Any, y: Any) -> jax.Array:
    """x times y with its last two dimensions swapped; the leading ones are equal, unless y is a matrix."""
    if y.ndim == 2:
        return times_stored(x, y)
    rows, leading = (x.ndim - 1,), tuple(range(x.ndim - 2))
    return lax.dot_general(x, y, ((rows, rows), (leading, leading)))
