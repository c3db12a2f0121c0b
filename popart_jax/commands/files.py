"""Files that a command writes: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

import numpy as np

from ipu_model.whole_files import replacing

from ..errors import popart_exception


@contextlib.contextmanager
def whole(path: Path) -> Generator[Path]:
    """A path to write to; it takes the place of `path` when the block ends well and leaves nothing otherwise.

    A file that can't be written raises popart_exception.
    """
    check_writable(path)
    try:
        with replacing(path) as folder:
            yield folder / path.name
    except OSError as err:
        raise popart_exception(f"'{path}' can't be written: {err.strerror or err}.") from err


def check_writable(path: Path) -> None:
    """Raise popart_exception, before a command starts its work, if the file can't be written."""
    folder = path.parent
    if path.is_dir():
        raise popart_exception(f"'{path}' can't be written: it is a folder.")
    if not folder.is_dir():
        raise popart_exception(f"'{path}' can't be written: there is no folder '{folder}'.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise popart_exception(f"'{path}' can't be written: no right to write to '{folder}'.")


def make_folder(path: Path) -> None:
    """A folder, with those above it; popart_exception if it can't be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise popart_exception(f"The folder '{path}' can't be made: {err.strerror or err}.") from err
    if not os.access(path, os.W_OK | os.X_OK):
        raise popart_exception(f"No right to write to the folder '{path}'.")


def nameless(dtype: np.dtype) -> np.dtype | None:
    """The type of raw bytes that ``.npy`` files have instead of a type unknown to NumPy (bfloat16); None for others."""
    return np.dtype(f"V{dtype.itemsize}") if dtype.type.__module__ == "ml_dtypes" else None
