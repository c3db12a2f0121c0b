"""Deferral of Ctrl-C during a run, because donated state is lost until the results are stored.

Python raises KeyboardInterrupt as soon as a call into XLA returns, before the caller can bind what it returned.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Uninterrupted:
    """A scope that defers interrupts until its end.

    Only the main thread receives interrupts; in other threads this does nothing.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._before = handler
                signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self._came is not None:
            self._before(*self._came)
