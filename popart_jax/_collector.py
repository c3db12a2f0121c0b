"""Work that makes many objects which stay: the collector of cycles would walk all of them again and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Generator[None]:
    """Scope, or decorator, in which Python does not look for cyclic garbage.

    Importing JAX leaves half a million objects behind; each full collection while a program is traced walks them
    all, which takes a tenth of a second.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
