"""Running of programs written for PopART."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from . import dropin


def run_program(arguments: Sequence[str]) -> None:
    """Run a script (or ``-m module``) with popart, popxl and the others resolved to this package."""
    dropin.install()
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path.insert(0, "")
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = arguments[0]
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")
