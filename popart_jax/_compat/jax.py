"""The only module that touches version-sensitive JAX names."""

from __future__ import annotations

from functools import cache

import jax
from jax.core import Tracer as Tracer


def enable_x64(on: bool = True):
    """Scope in which 64-bit types are kept (or not); the global configuration stays as it is."""
    return jax.enable_x64(on)


@cache
def accepts_compiler_options(options: tuple[tuple[str, str], ...]) -> bool:
    """Whether this XLA knows the options: names come and go between releases."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except Exception:  # the error's class differs between releases
        return False
    return True
