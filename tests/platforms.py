"""Which tests hold on which platforms of JAX."""

from __future__ import annotations

import jax
import pytest

ON_CPUS = pytest.mark.skipif(jax.default_backend() != "cpu", reason="what is chosen for CPUs")
EXECUTED = [pytest.param("cpu", marks=ON_CPUS), "gpu"]
"""Platforms whose forms run here: those for CPUs are not right elsewhere, those for GPUs are."""
