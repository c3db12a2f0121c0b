"""Running of programs written for PopART."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from . import dropin

_HERE = Path(__file__).parent
_STARTED_IT = {"<frozen runpy>", __file__, str(_HERE / "__main__.py"), str(_HERE / "launching" / "worker.py")}


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error without the calls that started the program."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _STARTED_IT:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def run_program(arguments: Sequence[str]) -> None:
    """Run a script (or ``-m module``) with popart, popxl and the others resolved to this package.

    Errors that it does not handle are printed as ``python script.py`` would print them.
    """
    dropin.install()
    sys.excepthook = _print_error
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path.insert(0, "")
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = arguments[0]
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")
