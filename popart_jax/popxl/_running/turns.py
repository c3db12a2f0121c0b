"""Threads that use one session take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Shared(Protocol):
    """What several threads may use."""

    _turn: threading.RLock


S = TypeVar("S", bound=Shared)


def in_turn(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that one thread at a time runs, and no other such method of the same object meanwhile.

    A program overwrites the arrays that it was given, so nobody may read them while it runs.
    """

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._turn:
            return method(self, *args, **kwargs)

    return call
