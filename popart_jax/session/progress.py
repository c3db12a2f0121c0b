"""Progress of a compilation, for the callback of the option `compilationProgressLogger`."""

from __future__ import annotations

from collections.abc import Callable

from .options.session_options import SessionOptions


def reporter(options: SessionOptions, phases: int) -> Callable[[], None]:
    """A function to call at the end of each of `phases` phases; the callback gets (done, total) in its own ticks.

    XLA does not say how far it is, so ticks come in steps: laid out, traced, compiled, for each program.
    """
    log, total = options.compilationProgressLogger, options.compilationProgressTotal
    if log is None:
        return lambda: None
    log(0, total)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        log(done * total // phases, total)

    return advance
