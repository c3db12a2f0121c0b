"""Command line: ``python -m popart_jax SCRIPT.py args...`` or one of run, inspect, compare, profile."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import commands, dropin
from .errors import popart_exception

_USAGE = """\
python -m popart_jax SCRIPT.py [ARGS ...]       run a PopART or PopXL program
python -m popart_jax -m MODULE [ARGS ...]       the same for a module
python -m popart_jax demo                       train, check and price a small network on real digits
python -m popart_jax run FILE.onnx [...]        run a model once and show its outputs
python -m popart_jax inspect FILE.onnx          show inputs, outputs, weights and operators
python -m popart_jax compare FILE.onnx [...]    compare with ONNX Runtime
python -m popart_jax profile FILE.onnx [...]    modelled IPU cycles beside measured time"""


def parser() -> argparse.ArgumentParser:
    """The parser of the commands."""
    top = argparse.ArgumentParser("python -m popart_jax", usage=_USAGE)
    sub = top.add_subparsers(dest="command", required=True, prog="python -m popart_jax")
    for name, command in commands.COMMANDS.items():
        one = sub.add_parser(name, help=(command.run.__doc__ or "").splitlines()[0])
        if getattr(command, "TAKES_MODEL", True):
            one.add_argument("model", type=Path, help="an ONNX file")
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return top


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] not in commands.COMMANDS and (given[0] == "-m" or Path(given[0]).suffix == ".py"):
        run_program(given)
        return 0
    options = parser().parse_args(given)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except popart_exception:  # its text has been logged
        return 2


if __name__ == "__main__":
    sys.exit(main())
