"""The console that commands print to, and the progress bar of a terminal.

Markup is off, so that names such as ``[batch,8]`` print unchanged.
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
    """A console without markup, which prints above the progress bar."""
    for bar in _BARS:
        bar.stop()
    return Console(markup=False, highlight=False, emoji=False)


@contextlib.contextmanager
def progress() -> Generator[None]:
    """Scope in which the current phase is shown on standard error if that is a terminal."""
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
    """Show the progress of a phase with a known number of steps."""
    for bar in _BARS:
        bar.update(bar.task_ids[0], description=phase, completed=done, total=total)
