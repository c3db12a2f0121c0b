"""The check of `conftest.py` itself: a run in which a worker is too large fails, though all tests pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUICK = "tests/test_worker_memory.py::test_the_peak_is_at_least_what_there_is"


def test_the_peak_is_at_least_what_there_is() -> None:
    from .conftest import memory

    assert memory("VmHWM") >= memory("VmRSS") > 10


@pytest.mark.processes
@pytest.mark.parametrize(("workers", "limit", "status"), [("0", "10000", 0), ("0", "10", 1), ("1", "10", 1)])
def test_a_worker_above_the_limit_fails_the_run(workers: str, limit: str, status: int) -> None:
    command = [sys.executable, "-m", "pytest", "-n", workers, "-o", f"worker_memory={limit}", QUICK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert ("took more memory than the limit" in done.stdout) == bool(status)
