"""Products of one row of bytes with many known weights, one output after the other.

XLA makes one loop of the weights of an output where these lie side by side, and widens them as it reads them. In us, by
it, by oneDNN, which orders the weights at each call, and in float32 (Intel Xeon, two cores): 256 x 256 22, 56 and 10,
512 x 512 31, 68 and 26, 784 x 512 48, 77 and 61, 3,136 x 512 133, 216 and 310, 1,280 x 1,000 123, 186 and 260. A
perceptron of 784, 512, 512 and 10 takes 0.55 of the time in float32.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compat.jax import is_symbolic_dim, kept_call

_MANY = 1 << 17
_LONGEST = 4000
"""Longest sum: XLA (jaxlib 0.10) makes no such loop of 4,096 terms, and takes 8 times as long."""


def suits(a: Any, b: Any) -> bool:
    """Whether `product` multiplies these: one row, of known size, and a matrix of many weights."""
    row = not any(map(is_symbolic_dim, a.shape)) and math.prod(a.shape[:-1]) == 1
    return row and b.ndim == 2 and b.size > _MANY and a.shape[-1] == b.shape[0]


def product(a: Any, b: Any) -> jax.Array:
    """INT32 product of a row of signed bytes (..., K) with a matrix of them (K, N), a NumPy array."""
    row = a.reshape(1, a.shape[-1])
    cuts = [slice(i, i + _LONGEST) for i in range(0, b.shape[0], _LONGEST)]
    parts = [kept_call(_with_rows, row[:, cut], np.ascontiguousarray(b[cut].T)) for cut in cuts]
    return sum(parts[1:], parts[0]).reshape(*a.shape[:-1], b.shape[1])


def _with_rows(row: jax.Array, weights: jax.Array) -> jax.Array:
    """The product with weights (N, K); XLA would widen and turn those that it knows before the program runs."""
    hidden = weights ^ _nothing(row)
    return jnp.matmul(row, hidden.T, preferred_element_type=jnp.int32)


def _nothing(row: jax.Array) -> jax.Array:
    """Zero, as a number that follows from the row."""
    first = row[0, 0].astype(np.uint8).astype(np.uint32)
    return (first >> np.uint32(8)).astype(np.int8)
