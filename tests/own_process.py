"""Modules of this tree in processes of their own: there JAX has as many devices as they ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def start(module: str, *words: object) -> subprocess.Popen[str]:
    """The module, running on the CPU."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)], env=environment, cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    """What it printed, once it has ended well."""
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err[-3000:]
    return out


def figures(module: str, *words: object) -> Any:
    """What it printed last, as JSON."""
    return json.loads(finish(start(module, *words)).splitlines()[-1])
