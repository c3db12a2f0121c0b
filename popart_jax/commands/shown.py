"""Where the commands print, and the bar that a terminal gets while they work.

Names of models are no markup, so ``[batch,8]`` stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from rich.console import Console

from ..timings import watched

if TYPE_CHECKING:
    from rich.progress import Progress

_BARS: list[Progress] = []


def console() -> Console:
    """A console that takes every text as it is; the bar makes room for it."""
    for bar in _BARS:
        bar.stop()
    return Console(markup=False, highlight=False, emoji=False)


@contextlib.contextmanager
def progress() -> Generator[None]:
    """Scope in which a terminal's standard error shows the phase that runs; elsewhere nothing is written."""
    where = Console(stderr=True)
    if not where.is_terminal:
        yield
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=where, transient=True, redirect_stdout=False)
    task = bar.add_task("starting", total=None)
    _BARS.append(bar)
    try:
        with bar, watched(lambda phase: bar.update(task, description=phase)):
            yield
    finally:
        _BARS.remove(bar)


def advance(phase: str, done: int, total: int) -> None:
    """How far a phase is whose steps are known."""
    for bar in _BARS:
        bar.update(bar.task_ids[0], description=phase, completed=done, total=total)
