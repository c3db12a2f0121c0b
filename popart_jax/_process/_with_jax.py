"""Imports JAX for packages that need it and that programs may import directly; they import this module first."""

from __future__ import annotations

import sys

from .._compat.jax_plugins import quick_discovery
from .collector import without_collector
from .random_state import random_state_kept

_FIRST = "jax" not in sys.modules

with random_state_kept(), without_collector(), quick_discovery():
    import jax as jax

    from .._compat.jax import settings

_SETTINGS = settings()


def is_unchanged() -> bool:
    """Whether JAX was imported here first, and its settings are still those of the environment."""
    return _FIRST and settings() == _SETTINGS
