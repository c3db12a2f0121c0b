"""Tells whether a file was changed since it was read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

Stamp = tuple[int, int, int, int]


def file_stamp(path: str | Path) -> Stamp:
    """Time of the last change, size and identity of a file: a file that was replaced or changed has another stamp.

    Raises OSError where there is no such file, or the path names something else than a file.
    """
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise FileNotFoundError(path)
    return facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_dev
