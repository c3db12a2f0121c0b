"""Keeps NumPy's global random state while JAX is imported, which draws from it; programs seed it before that."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def random_state_kept() -> Generator[None]:
    """Scope, or decorator, for code that may import JAX first: NumPy's random state is restored afterwards.

    A program that has not imported NumPy can't have seeded it, and one that does not import JAX is not affected.
    """
    random = None if "jax" in sys.modules else sys.modules.get("numpy.random")
    before = None if random is None else random.get_state()
    try:
        yield
    finally:
        if random is not None and "jax" in sys.modules:
            random.set_state(before)
