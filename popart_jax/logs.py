"""PopART's logging: one spdlog-like logger per module, on top of Python's `logging`.

Modules are Python loggers ``popart.<module>`` below ``popart``. Records go to stderr unless the environment variable
``POPART_LOG_DEST`` is stdout or names a file. Levels come from ``POPART_LOG_LEVEL`` and ``POPART_LOG_CONFIG``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, cast

MODULES = (
    "popart",
    "session",
    "ir",
    "devicex",
    "transform",
    "pattern",
    "builder",
    "op",
    "opx",
    "ces",
    "python",
    "none",
)
_OFF = logging.CRITICAL + 10
_TRACE = 5
LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": _OFF,
}
_LETTERS = {
    _TRACE: "T",
    logging.DEBUG: "D",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "C",
}
_WORDS = {"T": "trace", "D": "debug", "I": "info", "W": "warning", "E": "error", "C": "critical"}
_DEFAULT_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ %P.%t %L: %v"
_ROOT = "popart"


class _SpdlogFormatter(logging.Formatter):
    """Formats records by a pattern in spdlog's syntax; times are UTC."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern

    def format(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "?")
        now = time.gmtime(record.created)
        fields: dict[str, Callable[[], Any]] = {
            "v": record.getMessage,
            "n": lambda: record.name.removeprefix(f"{_ROOT}."),
            "l": lambda: _WORDS.get(letter, record.levelname.lower()),
            "L": lambda: letter,
            "P": lambda: record.process,
            "t": lambda: record.thread,
            "e": lambda: f"{int(record.msecs):03d}",
            "f": lambda: f"{int(record.created % 1 * 1e6):06d}",
            "F": lambda: f"{int(record.created % 1 * 1e9):09d}",
            "%": lambda: "%",
            "^": lambda: "",
            "$": lambda: "",
        }
        return re.sub(
            r"%(.)", lambda m: str(fields[m[1]]()) if m[1] in fields else time.strftime(m[0], now), self._pattern
        )


class _Destination(logging.Handler):
    """Writes to the current stderr or stdout (looked up at each record, so redirection works), or to a file."""

    def __init__(self, where: str) -> None:
        super().__init__(_TRACE)
        self._where = where
        self._file = None if where in ("stderr", "stdout") else open(where, "w", encoding="utf-8")  # noqa: SIM115

    def emit(self, record: logging.LogRecord) -> None:
        stream = self._file or getattr(sys, self._where)
        try:
            stream.write(self.format(record) + "\n")
            stream.flush()
        except (OSError, ValueError):
            self.handleError(record)


_configured: list[_Destination] = []


def _configure() -> None:
    """Configure the loggers from the environment, once, at the first use."""
    if _configured:
        return
    logging.addLevelName(_TRACE, "TRACE")
    problems: list[str] = []
    handler = _destination(os.environ.get("POPART_LOG_DEST", "stderr"), problems)
    handler.setFormatter(_SpdlogFormatter(os.environ.get("POPART_LOG_FORMAT", _DEFAULT_FORMAT)))
    _configured.append(handler)
    root = logging.getLogger(_ROOT)
    root.addHandler(handler)
    root.setLevel(level_number(os.environ.get("POPART_LOG_LEVEL", "WARN")))
    for name, level in _config_file(problems).items():
        _python_logger(name).setLevel(level_number(level))
    for problem in problems:
        root.warning("%s", problem)


def _destination(where: str, problems: list[str]) -> _Destination:
    """The handler of POPART_LOG_DEST; stderr if that can't be written, with the reason added to `problems`."""
    try:
        return _Destination(where)
    except OSError as err:
        problems.append(f"POPART_LOG_DEST can't be written, logging to stderr: {err}")
        return _Destination("stderr")


def _config_file(problems: list[str]) -> dict[str, str]:
    """Levels by module from POPART_LOG_CONFIG; none if the file is invalid, with the reason added to `problems`."""
    path = os.environ.get("POPART_LOG_CONFIG")
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            levels: Any = json.load(file)
    except (OSError, ValueError) as err:
        problems.append(f"POPART_LOG_CONFIG can't be read, its levels are not set: {err}")
        return {}
    found = cast("dict[str, Any]", levels) if isinstance(levels, dict) else None
    if found is not None and all(isinstance(v, str) for v in found.values()):
        return found
    problems.append(f"POPART_LOG_CONFIG: '{path}' is no JSON object of module names and levels; they are not set.")
    return {}


def _python_logger(name: str) -> logging.Logger:
    module = name.removeprefix("popart:")
    return logging.getLogger(_ROOT if module == "all" else f"{_ROOT}.{module}")


def level_number(name: str) -> int:
    """Python's number for a level name; an unknown name means OFF, as upstream."""
    return LEVELS.get(name, _OFF)


def module_logger(name: str) -> logging.Logger:
    """The Python logger of a PopART module such as ``session`` or ``devicex``, for use inside this package."""
    _configure()
    return _python_logger(name)
