"""Run modules of the test tree in separate processes, where JAX has as many devices as they ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def start(module: str, *words: object) -> subprocess.Popen[str]:
    """Start a module in a process on the CPU."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.quick", module, *map(str, words)], env=environment, cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a process to succeed, and return its output."""
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err[-3000:]
    return out


def figures(module: str, *words: object) -> Any:
    """Run a module, and return the last line of its output, parsed as JSON."""
    return json.loads(finish(start(module, *words)).splitlines()[-1])
