"""A scope for the first import of JAX, which then does not read the metadata of every installed package.

JAX 0.10 looks for ROCm's plugin by the names in these files, which takes 0.1 s with 200 packages; the names of their
folders say the same.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

_PLUGIN = "jax_rocm"


@contextmanager
def quick_discovery() -> Generator[None]:
    """Scope in which JAX's modules, and no others, are told only of distributions that may be its plugins."""
    every = importlib.metadata.distributions

    def distributions(**context: Any) -> Iterable[importlib.metadata.Distribution]:
        found = every(**context)
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return filter(_may_be_plugin, found) if asks.startswith("jax.") else found

    importlib.metadata.distributions = distributions
    try:
        yield
    finally:
        importlib.metadata.distributions = every


def _may_be_plugin(distribution: Any) -> bool:
    folder = getattr(getattr(distribution, "_path", None), "name", _PLUGIN)
    return folder.lower().replace("-", "_").startswith(_PLUGIN)
