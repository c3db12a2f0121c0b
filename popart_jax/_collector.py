"""Suspends Python's cyclic garbage collector during work that makes many lasting objects, which it would traverse."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Generator[None]:
    """Scope, or decorator, in which Python does not collect cyclic garbage.

    Importing JAX leaves half a million objects; each full collection while a program is traced traverses all of them,
    which takes a tenth of a second.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
