"""The only module that touches version-sensitive JAX names."""

from __future__ import annotations

import jax
from jax.core import Tracer as Tracer


def enable_x64(on: bool = True):
    """Scope in which 64-bit types are kept (or not); the global configuration stays as it is."""
    return jax.enable_x64(on)
