"""Calls of the host inside a compiled step, for prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

from .arrays import Array
from .kernels import IPU, platform


def host_call(function: Callable[..., Any], *operands: Array) -> jax.Array:
    """Call a function of NumPy arrays in execution order: the int32 that it gives is 0 and orders what reads it.

    Steps that are priced never run. There the call has no effect for JAX, whose transformations refuse some.
    """
    call = jax.pure_callback if platform() == IPU else io_callback
    return call(function, jax.ShapeDtypeStruct((), jnp.int32), *operands)
