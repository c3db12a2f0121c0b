"""Programs seed NumPy's global generator, build a session and draw data: JAX draws from it when it is imported."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def random_state_kept() -> Generator[None]:
    """Scope, or decorator, of what may import JAX first: NumPy's generator is then left as it was.

    A program that has not imported NumPy cannot have seeded it, and one that needs no JAX does without it.
    """
    random = None if "jax" in sys.modules else sys.modules.get("numpy.random")
    before = None if random is None else random.get_state()
    try:
        yield
    finally:
        if random is not None and "jax" in sys.modules:
            random.set_state(before)
