"""What makes programs of tests quick to compile, in a worker of the run and in processes that tests start.

All programs of a thread are lowered in one MLIR context: to make one takes a fifth of the time that a small program
takes to compile. A program whose text is that of an earlier one is not compiled again: about half of them are, since
each test traces a network of its own, and since operators outside of `jit` are programs each. Python looks for garbage
less often.

``python -m tests.quick MODULE WORDS`` runs a module so.
"""

from __future__ import annotations

import gc
import hashlib
import runpy
import sys
import threading
from collections.abc import Sequence
from typing import Any

from jax._src import compiler
from jax._src.interpreters import mlir

_LOCAL = threading.local()
_PROGRAMS: dict[tuple[Any, ...], Any] = {}


def forget() -> None:
    """Drop the programs, and the contexts of this thread."""
    _PROGRAMS.clear()
    vars(_LOCAL).clear()


def share() -> None:
    """From now on what programs have in common is made once, until `forget`."""
    gc.set_threshold(20_000, 20, 20)
    _share_contexts()
    _share_programs()


def _share_contexts() -> None:
    make = getattr(mlir, "make_ir_context", None)
    if make is None:  # a version of JAX that works otherwise
        return

    def shared() -> Any:
        if not hasattr(_LOCAL, "context"):
            _LOCAL.context = make()
        return _LOCAL.context

    mlir.make_ir_context = shared


def _share_programs() -> None:
    compile_ = getattr(compiler, "backend_compile_and_load", None)
    if compile_ is None:
        return

    def shared(backend: Any, module: Any, devices: Any, options: Any, host_callbacks: Sequence[Any]) -> Any:
        text = module.operation.get_asm(enable_debug_info=False)
        if host_callbacks or "callback" in text:  # such a program holds the address of a Python function
            return compile_(backend, module, devices, options, host_callbacks)
        digest = hashlib.sha256(text.encode()).digest()
        key = backend, digest, options.SerializeAsString(), tuple(d.id for d in devices)
        if key not in _PROGRAMS:
            _PROGRAMS[key] = compile_(backend, module, devices, options, host_callbacks)
        return _PROGRAMS[key]

    compiler.backend_compile_and_load = shared


def main() -> None:
    """Run a module as ``python -m`` does."""
    share()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
