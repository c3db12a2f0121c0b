"""Command line: ``python -m popart_jax SCRIPT.py args...`` or one of the commands in `commands`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import indent
from typing import NoReturn

from . import commands
from .commands.shown import progress
from .errors import popart_exception
from .scripts import run_program
from .version import __version__

PROGRAM = "python -m popart_jax"
_USAGE = """\
python -m popart_jax SCRIPT.py [ARGS ...]       run a PopART or PopXL program
python -m popart_jax -m MODULE [ARGS ...]       the same for a module
python -m popart_jax demo                       train, check and price a small network on real digits
python -m popart_jax run FILE.onnx [...]        run a model once and show its outputs
python -m popart_jax inspect FILE.onnx          show inputs, outputs, weights and operators
python -m popart_jax compare FILE.onnx [...]    compare with ONNX Runtime
python -m popart_jax export FILE.onnx TO.onnx   keep what leads to some tensors, for other ONNX runtimes
python -m popart_jax profile FILE.onnx [...]    modelled IPU cycles beside measured time
python -m popart_jax train FILE.onnx [...]      train on the arrays of a file and save the model
python -m popart_jax bench FILE.onnx [...]      time the model, by itself or beside ONNX Runtime
python -m popart_jax scale FILE.onnx [...]      plans for many chips, priced by the IPU model
python -m popart_jax launch -n 4 SCRIPT.py ...  a program in several processes, on one machine or many"""
_STATUS = """\
exit status: 0 all is well; 1 the answer is no (inspect: an operator has no translation; compare: a node differs);
2 the command could not do its work, the reason is on standard error; 130 interrupted"""
_FAILED, _INTERRUPTED = 2, 130


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_FAILED, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the commands."""
    top = _Parser(PROGRAM, usage=_USAGE, epilog=_STATUS, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"popart_jax {__version__}")
    sub = top.add_subparsers(dest="command", required=True, prog=PROGRAM, metavar="COMMAND")
    for name, command in commands.COMMANDS.items():
        summary = (command.run.__doc__ or "").splitlines()[0]
        one = sub.add_parser(name, help=summary, description=summary)
        if getattr(command, "TAKES_MODEL", True):
            one.add_argument("model", type=Path, help="an ONNX file")
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return top


def _fail(where: str, message: object) -> int:
    """Print an error, and below it its notes, which say what to do."""
    told = (note.strip() for note in getattr(message, "__notes__", ()))
    notes = (indent(note, "  ") for note in told if "JAX_TRACEBACK_FILTERING" not in note)  # no traceback is shown
    print(f"{where}: error: {message}", *notes, sep="\n", file=sys.stderr)
    return _FAILED


def _program(given: Sequence[str]) -> int:
    """Run a script or module, which must exist; errors in it are not caught."""
    if given[0] == "-m" and len(given) < 2:
        return _fail(PROGRAM, f"-m needs the name of a module; see {PROGRAM} --help")
    if given[0] != "-m" and not Path(given[0]).is_file():
        return _fail(PROGRAM, f"there is no file '{given[0]}'")
    run_program(given)
    return 0


def _command(options: argparse.Namespace) -> int:
    """Run one of the commands; its errors are printed to stderr."""
    run: Callable[[argparse.Namespace], int] = options.run
    where = f"{PROGRAM} {options.command}"
    model: Path | None = getattr(options, "model", None)
    if model is not None and not model.is_file():
        return _fail(where, f"'{model}' is a folder" if model.is_dir() else f"there is no file '{model}'")
    try:
        with contextlib.nullcontext() if getattr(commands.COMMANDS[options.command], "OWN_BAR", False) else progress():
            return run(options)
    except (popart_exception, ImportError) as err:
        return _fail(where, err)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as err:
        return _fail(where, f"{err.strerror or err}: '{err.filename}'" if err.filename else err)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return _INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"] and len(given) > 1 and Path(given[1]).suffix == ".py":
        del given[0]  # a program needs no command
    if given and given[0] not in commands.COMMANDS and (given[0] == "-m" or Path(given[0]).suffix == ".py"):
        return _program(given)
    return _command(parser().parse_args(given))


if __name__ == "__main__":
    sys.exit(main())
