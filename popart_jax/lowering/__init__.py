"""Graphs to JAX functions: the interpreter, trace-time values, subgraphs."""

from __future__ import annotations

from .function import to_jax as to_jax
from .interpreter import Settings as Settings
from .interpreter import evaluate as evaluate
