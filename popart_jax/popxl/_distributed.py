"""Replication over several processes."""

from __future__ import annotations

import os

import jax


def instances() -> int:
    """Number of processes."""
    return jax.process_count()


def replicas() -> int:
    """Replicas of a distributed run: one per process unless ``POPART_JAX_REPLICAS`` says how many there are."""
    return int(os.environ.get("POPART_JAX_REPLICAS", instances()))
