"""Small facts that take an import of JAX to find out, kept beside JAX's compilation cache for later processes.

A process that has not imported JAX may read them; one that has finds them out itself, as its program may change them.
They are JSON values in one sealed file, whose name is a hash of the environment, of what is installed and of our
sources.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ipu_model.whole_files import write_whole

from .execution.stored.cache_folder import file_in, keep, mark_used
from .execution.stored.described import XLA_VARIABLES, installed, machine, name_of, sources
from .execution.stored.seal import require_sealed, sealed
from .logs import module_logger

FOLDER = "JAX_COMPILATION_CACHE_DIR"
VARIABLES = (*XLA_VARIABLES, "JAX")
"""Beginnings of the environment variables that JAX and XLA read."""
IRRELEVANT = (FOLDER, "TF_CPP_MIN_LOG_LEVEL")  # JAX sets the latter
_MOST = 1 << 24
"""Largest size of the file in bytes."""


def variables() -> dict[str, str]:
    """The environment variables that JAX and XLA read."""
    return {n: v for n, v in os.environ.items() if n.startswith(VARIABLES) and n not in IRRELEVANT}


def cache_folder() -> Path | None:
    """JAX's cache folder by the environment; None if there is none on this machine's disks."""
    folder = os.environ.get(FOLDER)
    return None if not folder or "://" in folder else Path(folder)


class Learnt:
    """The facts of one file, and those that this process adds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)
        self._new: dict[str, Any] = {}

    def recall(self, key: str) -> Any:
        """The value of a key; None if there is none, or if JAX is there to ask."""
        return None if "jax" in sys.modules else self._known.get(key)

    def note(self, key: str, value: Any) -> None:
        """Add a value that every process would find."""
        if key not in self._known:
            self._new[key] = value

    def keep(self) -> None:
        """Write what this process has added, if anything."""
        if not self._new:
            return
        self._known, self._new = {**_read(self._path), **self._known, **self._new}, {}
        text = json.dumps(self._known)
        if len(text) < _MOST:
            keep(self._path, lambda path: write_whole(path, f"{sealed(text.encode())}\n{text}".encode()))


def _read(path: Path) -> Mapping[str, Any]:
    """The facts of a file; none if it is not there, damaged, or of another user."""
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as file:
            seal, _, text = file.read(_MOST + 100).partition(b"\n")
        require_sealed(text, seal.decode(), str(path))
        mark_used(path)
        return json.loads(text)
    except Exception as err:  # whatever a damaged file may raise
        module_logger("builder").warning("Failed to read %s: %s", path, err)
        return {}


def learnt() -> Learnt | None:
    """The facts of this user; None without a cache folder, or where JAX was imported before the first call."""
    return _at(os.environ.get(FOLDER))


@cache
def _at(_: str | None) -> Learnt | None:
    folder = cache_folder()
    if folder is None or "jax" in sys.modules:
        return None
    key = name_of("learnt", variables(), installed(), sources(), machine())
    return None if key is None else Learnt(file_in(folder, key))
