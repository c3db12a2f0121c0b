"""Helpers for values in control flow: constants known while tracing, and device arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compat.jax import Tracer

VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)
"""Opset versions in which ONNX redefines If, Loop and Scan."""


def known(x: Any) -> Any:
    """The scalar as NumPy if its value is known now, else None."""
    try:
        return np.asarray(x).reshape(())
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return None


def staged() -> bool:
    """Whether operations are being recorded (jit, scan) rather than executed."""
    return isinstance(jnp.zeros(()) + 0, Tracer)


def _array(value: Any) -> jax.Array:
    return jnp.asarray(value)


def arrays(values: Any) -> Any:
    """Each value of a tree as a JAX array."""
    return jax.tree.map(_array, values)
