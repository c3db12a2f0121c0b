"""A folder of compiled programs: bounded, shared by processes, and never a reason for a program to fail."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import popart_exception
from ..limits import limits
from ..logs import module_logger

SUFFIX = ".popef"
_OURS = re.compile(r"(popart_jax-)?\d+\.popef")
_LEFT_BEHIND = 3600.0
"""Seconds after which a half-written file belongs to a process that has ended."""


def keep(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file into a cache; one line in the log where that fails.

    Parameters
    ----------
    path : Path
        The file; its folder is made, for this user alone, if need be. Files used least recently make room for it.
    write : callable
        Writes the file, whole or not at all.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sweep(path.parent)
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would wait for a reader
            raise FileExistsError(errno.EEXIST, "What stands there is no file", str(path))
        write(path)
        _make_room(path)
    except popart_exception as err:
        module_logger("session").info("The executable is not cached: %s", err)
    except OSError as err:
        module_logger("session").warning("The executable is not cached in %s: %s", path.parent, err)


def mark_used(path: Path) -> None:
    """Note that a file was used now; files that were not make room first."""
    with contextlib.suppress(OSError):  # a folder that may only be read
        os.utime(path)


def _make_room(newest: Path) -> None:
    """Delete our files that were used least recently, until the rest is within the limit."""
    found = []
    for path in newest.parent.glob(f"*{SUFFIX}"):
        if path != newest and _OURS.fullmatch(path.name):
            with contextlib.suppress(OSError):  # another process made room
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
    total = newest.stat().st_size + sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limits.cache:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _sweep(folder: Path) -> None:
    """Delete what processes that were killed while writing left behind."""
    for path in folder.glob(f".*{SUFFIX}.*"):
        with contextlib.suppress(OSError):
            if abs(time.time() - path.stat().st_mtime) > _LEFT_BEHIND:
                shutil.rmtree(path, ignore_errors=True)
