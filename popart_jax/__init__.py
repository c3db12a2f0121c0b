"""PopART's Python API, run by JAX."""

from __future__ import annotations

from .lowering import to_jax as to_jax
