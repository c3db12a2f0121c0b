"""Imports JAX for packages that need it and that programs may import directly; they import this module first."""

from __future__ import annotations

from ._collector import without_collector
from ._random_state import random_state_kept

with random_state_kept(), without_collector():
    import jax as jax
