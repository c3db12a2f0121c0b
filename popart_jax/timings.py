"""Time that each phase of preparing a program takes.

Phases are recorded by a `Timings` object, if there is one. Time in a nested phase is not counted in the outer one, so
that the times of all phases add up to the total.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

OTHER = "other"
FIRST_RUN = "first run"


class Timings:
    """Seconds by phase, summed over all collections."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @property
    def seconds(self) -> Mapping[str, float]:
        """A copy of the seconds by phase, in the order in which they first took time; time in no phase is ``other``."""
        return dict(self._seconds)

    def __contains__(self, name: str) -> bool:
        """Whether a phase took time."""
        return name in self._seconds

    @contextmanager
    def collect(self, name: str = OTHER) -> Generator[None]:
        """Scope in which phases are recorded here; time in none of them counts as `name`."""
        token = _COLLECTING.set(self)
        try:
            with self.phase(name):
                yield
        finally:
            _COLLECTING.reset(token)

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Scope of one phase."""
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        """Add the time since the last change to the innermost phase."""
        now = time.perf_counter()
        if self._open:
            name = self._open[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now


_WATCHING: ContextVar[Callable[[str], None] | None] = ContextVar("watching", default=None)
_COLLECTING: ContextVar[Timings | None] = ContextVar("timings", default=None)


@contextmanager
def watched(tell: Callable[[str], None]) -> Generator[None]:
    """Scope in which `tell` is called with the name of each phase as it begins."""
    token = _WATCHING.set(tell)
    try:
        yield
    finally:
        _WATCHING.reset(token)


def watching() -> bool:
    """Whether a `watched` scope is active."""
    return _WATCHING.get() is not None


@contextmanager
def phase(name: str) -> Generator[None]:
    """Scope, or decorator, of a phase; its overhead is negligible when nothing is recorded."""
    timings, tell = _COLLECTING.get(), _WATCHING.get()
    if tell is not None:
        tell(name)
    if timings is None:
        yield
        return
    with timings.phase(name):
        yield
