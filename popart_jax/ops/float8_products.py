"""PopART's products of float8 operands: a scalar power of two comes as a further input, the result is FLOAT16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ..errors import OpError, popart_exception
from .arrays import Array, dtype_name, times_power_of_two
from .cast import from_float8

_FLOAT8 = (np.dtype(ml_dtypes.float8_e4m3fnuz), np.dtype(ml_dtypes.float8_e5m2fnuz))


def is_float8(dtype: np.dtype) -> bool:
    """Whether this is one of PopART's float8 types."""
    return dtype in _FLOAT8


def has_float8(*operands: Array) -> bool:
    """Whether an operand is of one of them."""
    return any(is_float8(x.dtype) for x in operands)


def of_float8(op: str, product: Callable[[Any, Any], Any], x: Array, y: Array, power: Array | None) -> jax.Array:
    """``product(x, y) * 2**power``.

    Raises popart_exception where an operand is of another type, or the power is missing or no scalar integer.
    """
    for operand in (x, y):
        if not has_float8(operand):
            raise OpError(
                f"Invalid operand type: {dtype_name(operand)} in op {{Op}}.  If using a FLOAT8 input, all op operands "
                "must be a FLOAT8 type", op,
            )  # fmt: skip
    if power is None:
        raise OpError("Log2 scale input tensor must be provided for FLOAT8 input types in op {Op}", op)
    if np.size(power) != 1 or not jnp.issubdtype(power.dtype, jnp.integer):
        raise popart_exception(f"{op} of FLOAT8 operands needs a scalar INT32 scale, a power of two, as third input")
    return times_power_of_two(product(from_float8(x), from_float8(y)), power.reshape(())).astype(jnp.float16)
