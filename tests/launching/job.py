"""Starting jobs of two processes in tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith("POPDIST_")}
    return {**kept, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}


def start(*words: object, module: str = "popart_jax", cwd: Path = ROOT) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.Popen(
        command, env=environment(), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path
