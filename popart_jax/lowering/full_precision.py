"""Products of float32 in float32, on every platform.

For a product of float32 arrays XLA takes units of a GPU or TPU that round the operands first: to TF32 (10 bits) or
bfloat16 (7 bits). PopART's FLOAT is not rounded, so sessions ask for full precision. JAX's own setting
``jax_default_matmul_precision``, where the user has chosen one, is kept.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import jax

from .._compat.jax import setting
from ..ops.kernels import IPU, platform


@contextmanager
def full_precision() -> Generator[None]:
    """Scope, or decorator of a function to be traced, for products in full precision; CPUs have no other."""
    if platform() in ("cpu", IPU) or setting("jax_default_matmul_precision") is not None:
        yield
    else:
        with jax.default_matmul_precision("highest"):
            yield
