"""Atomic writing of files. Only the standard library: commands import this module before anything heavy."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary folder for a file and files beside it; when the block succeeds they replace those at `path`.

    A pipe or a device gets the file's bytes. Raises OSError where the folder is not there, can't be written to, or is
    full; what was there before stays.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A folder stands there, not a file", str(path))
    if path.exists() and not path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
            path.write_bytes((Path(folder) / path.name).read_bytes())
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        made = Path(folder)
        yield made
        for other in sorted(made.iterdir()):
            _flush(other)
            if other.name != path.name:
                os.replace(other, path.parent / other.name)
        os.replace(made / path.name, path)


def replace_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Put a file in place that `fill` writes into the folder it is given; see `replacing`."""
    with replacing(path) as folder:
        fill(folder)


def replace_folder(made: Path, path: Path) -> None:
    """Replace a folder by a complete one; the old one stays until then.

    Raises OSError where it can't be moved, or what stands there is no folder; what was there before stays.
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "What stands there is no folder", str(path))
    old = path.with_name(f".{path.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    try:
        made.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_whole(path: str | Path, data: bytes | str) -> None:
    """Write a file whole or not at all; text is written as UTF-8, and into a pipe or a device as it comes.

    Raises OSError where it can't be written; what was there before stays.
    """
    target = Path(path).resolve()  # the file itself is replaced, not a link to it
    data = data.encode() if isinstance(data, str) else data
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return

    def fill(folder: Path) -> None:
        (folder / target.name).write_bytes(data)

    replace_file(target, fill)


def _flush(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
