"""`libpvti`: what a program marks for PopVision's System Analyser, written as a trace that Perfetto and Chrome open.

Nothing is recorded unless ``PVTI_OPTIONS`` in the environment asks for it: ``{"enable": "true", "directory": "here"}``.
Each process then writes a file of its own, ``<time>_<process>.pvti.json``.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TextIO, TypeVar, cast

from .errors import poplar_exception

__all__ = ["Graph", "Series", "TraceChannel", "Tracepoint", "createTraceChannel", "instrument", "instrument_fn"]

OPTIONS = "PVTI_OPTIONS"
_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)


class TraceChannel:
    """A row of marks with a name of its own."""

    def __init__(self, name: str) -> None:
        self.name = name


def createTraceChannel(name: str) -> TraceChannel:
    """A channel for marks."""
    return TraceChannel(name)


class Tracepoint:
    """Marks a stretch of time: ``with Tracepoint(channel, "epoch 3"):``."""

    def __init__(self, channel: TraceChannel, label: str) -> None:
        self._channel, self._label = channel, label

    def __enter__(self) -> Tracepoint:
        Tracepoint.begin(self._channel, self._label)
        return self

    def __exit__(self, *_: object) -> None:
        Tracepoint.end(self._channel, self._label)

    @staticmethod
    def begin(channel: TraceChannel, label: str) -> None:
        """The stretch begins."""
        _record("B", label, cat=channel.name)

    @staticmethod
    def end(channel: TraceChannel, label: str) -> None:
        """The stretch ends; stretches of a thread end in the opposite order of their beginnings."""
        _record("E", label, cat=channel.name)

    @staticmethod
    def event(channel: TraceChannel, label: str) -> None:
        """Mark an instant."""
        _record("i", label, cat=channel.name, s="t")


def instrument_fn(channel: TraceChannel) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator that marks each call of a function by the function's name."""

    def marked(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with Tracepoint(channel, function.__qualname__):
                return function(*args, **kwargs)

        return call

    return marked


def instrument(channel: TraceChannel, methods: Sequence[str]) -> Callable[[_C], _C]:
    """A decorator that marks each call of some methods of a class."""

    def marked(cls: _C) -> _C:
        for name in methods:
            setattr(cls, name, instrument_fn(channel)(getattr(cls, name)))
        return cls

    return marked


class Series:
    """One line of a `Graph`."""

    def __init__(self, graph: str, name: str) -> None:
        self._graph, self._name = graph, name

    def add(self, value: float) -> None:
        """The value from now on."""
        _record("C", self._graph, args={self._name: float(value)})


class Graph:
    """Numbers over time, such as a loss."""

    def __init__(self, name: str, unit: str = "") -> None:
        self._name = f"{name} [{unit}]" if unit else name

    def addSeries(self, name: str) -> Series:
        """A line of this graph."""
        return Series(self._name, name)


_LOCK = threading.Lock()


def _record(phase: str, name: str, **more: Any) -> None:
    folder = _folder(os.environ.get(OPTIONS, "").strip())
    if folder is None:
        return
    where = {"pid": os.getpid(), "tid": threading.get_native_id(), "ts": time.perf_counter_ns() / 1000}
    with _LOCK:
        _file(folder, os.getpid()).write(json.dumps({"ph": phase, "name": name, **where, **more}) + ",\n")


@functools.cache
def _folder(text: str) -> str | None:
    """The folder for traces, or None if they are not asked for; poplar_exception if the options are no JSON object."""
    try:
        found: object = json.loads(text or "{}")
    except ValueError as err:
        raise poplar_exception(f"{OPTIONS} must be a JSON object, got {text!r}: {err}") from err
    if not isinstance(found, dict):
        raise poplar_exception(f"{OPTIONS} must be a JSON object, got {text!r}")
    options = cast("dict[str, object]", found)
    enabled = str(options.get("enable", "false")).lower() == "true"
    return str(options.get("directory", ".")) if enabled else None


@functools.cache
def _file(folder: str, process: int) -> TextIO:
    """The open trace of a process: a JSON array without its end, which readers of traces do not need."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = f"{time.strftime('%a_%b_%d_%H-%M-%S_%Y_GMT', time.gmtime())}_{process}.pvti.json"
    file = (Path(folder) / name).open("w", buffering=1, encoding="utf-8")
    file.write("[\n")
    return file
