"""A folder of compiled programs: bounded in size, shared by processes, and never a reason for a program to fail."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import popart_exception
from ...limits import limits
from ...logs import module_logger

SUFFIX = ".popef"
_OURS = re.compile(r"(popart_jax-)?\d+\.popef")
_LEFT_BEHIND = 3600.0
"""Age in seconds at which a half-written file is taken to be left by a process that has ended."""


def file_in(folder: Path, key: str) -> Path:
    """The file of a program's key in the folder of JAX's cache, beside JAX's own files."""
    return folder / f"popart_jax-{key}{SUFFIX}"


def keep(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file into a cache; a failure is one line in the log.

    The folder is created, for this user alone, if need be, and least recently used files are deleted for the new one,
    which is complete or absent.
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
    """Record that a file was used now; the least recently used ones are deleted first."""
    with contextlib.suppress(OSError):  # the folder may be read-only
        os.utime(path)


def _make_room(newest: Path) -> None:
    """Delete our least recently used files until the rest is within the limit."""
    found: list[tuple[float, int, Path]] = []
    for path in newest.parent.glob(f"*{SUFFIX}"):
        if path != newest and _OURS.fullmatch(path.name):
            with contextlib.suppress(OSError):  # another process deleted it
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
    """Delete half-written files of processes that were killed."""
    for path in folder.glob(f".*{SUFFIX}.*"):
        with contextlib.suppress(OSError):
            if abs(time.time() - path.stat().st_mtime) > _LEFT_BEHIND:
                shutil.rmtree(path, ignore_errors=True)
