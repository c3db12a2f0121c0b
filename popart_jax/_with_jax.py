"""Imported before anything else by packages that need JAX and that programs may name themselves."""

from __future__ import annotations

from ._random_state import random_state_kept

with random_state_kept():
    import jax as jax
