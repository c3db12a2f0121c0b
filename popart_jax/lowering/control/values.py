"""Values of control flow: what is known while tracing, and what becomes an array of the device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compat.jax import Tracer

VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)
"""Opset versions at which ONNX describes If, Loop and Scan anew."""


def known(x: Any) -> Any:
    """The scalar itself as NumPy if its value can be had now, else None."""
    try:
        return np.asarray(x).reshape(())
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return None


def staged() -> bool:
    """Whether operations are being recorded (jit, scan) rather than executed."""
    return isinstance(jnp.zeros(()) + 0, Tracer)


def arrays(values: Any) -> Any:
    """Each value of a tree as an array of the device."""
    return jax.tree.map(jnp.asarray, values)
