"""Fixtures of tests in which sessions start from files of earlier ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from popart_jax import learnt
from popart_jax._compat.jax import compilation_cache
from popart_jax.session import start_lookup as start
from popart_jax.session.preparing import prepared


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cache of its own, for `start` as in a process that has not imported JAX yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(learnt.FOLDER, str(folder))
    for name in [n for n in os.environ if n.startswith("POP")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(start, "sys", SimpleNamespace(modules={}))
    with compilation_cache(str(folder)):
        yield folder


@pytest.fixture
def made_in_full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each session that was prepared in full."""
    made: list[str] = []
    types: Callable[..., Any] = prepared.read_session_model

    def counted(*args: Any, **options: Any) -> Any:
        made.append("session")
        return types(*args, **options)

    monkeypatch.setattr(prepared, "read_session_model", counted)
    return made
