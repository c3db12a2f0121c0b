"""Suspends Python's cyclic garbage collector during work that makes many lasting objects, which it would traverse."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

_LARGEST = "jax"
"""The import that leaves most objects."""


@contextmanager
def without_collector() -> Generator[None]:
    """Scope, or decorator, in which Python does not collect cyclic garbage.

    Importing JAX leaves half a million objects; each full collection while a program is traced traverses all of them,
    which takes a tenth of a second. After a scope that has imported it they count as old, as they would after two
    collections, each of which would traverse them all.
    """
    on, first = gc.isenabled(), _LARGEST not in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if first and _LARGEST in sys.modules:
            _count_all_as_old()
        if on:
            gc.enable()


def _count_all_as_old() -> None:
    """Move all objects to the oldest generation, without traversing them."""
    if not gc.get_freeze_count():  # what the program has frozen must stay so
        gc.freeze()
        gc.unfreeze()
