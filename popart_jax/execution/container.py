"""Compiled steps in a file: a zip archive with XLA's own serialised executables, facts about them, and variables.

XLA's serialised form holds machine code and is unpickled by JAX: load only files you trust.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax.experimental import serialize_executable

FORMAT = "popart_jax executable"
_META, _VARIABLES, _CODE = "metadata.json", "variables.npz", "executable/"
_MAIN = "main"


def write(path: Path, key: str, executables: Mapping[str, Any], variables: Mapping[str, np.ndarray] | None) -> None:
    """Write a container.

    Parameters
    ----------
    path : Path
        File to write; it is complete or absent, never half written.
    key : str
        What the executables depend on, in short.
    executables : mapping of str to jax.stages.Compiled
        By handle.
    variables : mapping of str to array, optional
        Values to keep with them.
    """
    temporary = path.with_name(path.name + ".part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_META, json.dumps({"format": FORMAT, "key": key, "handles": sorted(executables)}))
        for handle, compiled in executables.items():
            archive.writestr(_CODE + (handle or _MAIN), serialize_executable.serialize(compiled)[0])
        if variables is not None:
            buffer = io.BytesIO()
            np.savez(buffer, **{n: _storable(v) for n, v in variables.items()})  # pyright: ignore[reportArgumentType]
            archive.writestr(_VARIABLES, buffer.getvalue())
    temporary.replace(path)


def _storable(value: np.ndarray) -> np.ndarray:
    return value if value.dtype.kind != "V" else value.view(np.uint8)


def read_key(path: Path) -> str | None:
    """The key of a container; None if the file is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read(_META))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return meta.get("key") if meta.get("format") == FORMAT else None


def load(path: Path, handle: str, in_tree: Any, out_tree: Any) -> Any:
    """A compiled step from a container.

    Raises
    ------
    Exception
        Whatever zip or XLA raise for a damaged file or one of another machine.
    """
    with zipfile.ZipFile(path) as archive:
        payload = archive.read(_CODE + (handle or _MAIN))
    return serialize_executable.deserialize_and_load(payload, in_tree, out_tree)


def load_variables(path: Path) -> dict[str, np.ndarray]:
    """Variables kept in a container."""
    with zipfile.ZipFile(path) as archive:
        if _VARIABLES not in archive.namelist():
            return {}
        with np.load(io.BytesIO(archive.read(_VARIABLES))) as stored:
            return {name: stored[name] for name in stored.files}
