"""Helpers shared by the operator families."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir


def namespace(*arrays: Any) -> ModuleType:
    """`numpy` when every operand is known while tracing, else `jax.numpy`: keeps shape arithmetic cheap and static."""
    return np if all(x is None or isinstance(x, (np.ndarray, np.generic, int, float, bool)) for x in arrays) else jnp


def onnx_dtype(number: int) -> np.dtype:
    """NumPy (ml_dtypes) type of an ONNX type number."""
    return ir.DataType(number).numpy()
