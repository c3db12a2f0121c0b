"""Files that sessions write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def makedirsAndCheckWritable(path: str) -> None:
    """Make the directories that lead to `path`, and check that one may write there.

    Raises OSError where a directory cannot be made or written to.
    """
    target = Path(path).expanduser()
    directory = target if target.is_dir() else target.parent
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK):
        raise OSError(f"The directory '{directory}' is not writable.")
    with tempfile.TemporaryFile(dir=directory):
        pass
