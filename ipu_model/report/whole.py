"""Reports are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Make a file beside the one that is meant and put it in its place when it is complete.

    Raises
    ------
    OSError
        It can't be written; what was there before stays.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():  # a pipe or a device
        path.write_bytes(data)
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        made = Path(folder) / path.name
        with open(made, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(OSError):  # file systems without it
                os.fsync(file.fileno())
        os.replace(made, path)
