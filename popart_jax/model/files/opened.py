"""Models in open files: what they hold, as `onnx.load` reads it. Imports ONNX only where a file needs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...errors import NoModelError

_EXTERNAL = b"location"  # the key by which a tensor names another file


def opened(model: Any) -> Any:
    """The bytes that an open binary file holds, from where it stands; anything that is no open file as it is.

    A model with external data becomes a ModelProto that has them, read from the folder of the file's name. Raises
    NoModelError where the file was opened for text, popart_exception where external data are not there.
    """
    if not callable(getattr(model, "read", None)):
        return model
    data, name = model.read(), getattr(model, "name", None)
    if not isinstance(data, bytes):
        raise NoModelError("A model's file is opened in binary mode: open(path, 'rb').")
    if _EXTERNAL not in data or not isinstance(name, (str, os.PathLike)):
        return data
    from .load import load_stripped

    path = Path(os.fspath(name))
    return load_stripped(data).with_files_beside(path.parent, path.resolve().parent).whole()
