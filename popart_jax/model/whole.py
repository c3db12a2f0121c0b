"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a file, and what belongs beside it, in a folder of its own; put it in place when it is complete.

    Parameters
    ----------
    path : Path
        The file. What was there before stays until the new one is complete.
    fill : callable
        Writes a file of that name, and others if need be, into the folder it is given.

    Raises
    ------
    OSError
        The folder can't be written to, or is full.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        made = Path(folder)
        fill(made)
        for other in sorted(made.iterdir()):
            _flush(other)
            if other.name != path.name:
                os.replace(other, path.parent / other.name)
        os.replace(made / path.name, path)


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    OSError
        It can't be written; what was there before stays.
    """
    target = Path(path)

    def fill(folder: Path) -> None:
        (folder / target.name).write_bytes(data)

    replace_file(target, fill)


def _flush(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
