"""Compiled steps in a file: a zip archive with XLA's own serialised executables, facts about them, and variables.

XLA's serialised form holds machine code and is unpickled by JAX: load only files you trust.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from ..errors import popart_exception
from ..logs import module_logger

FORMAT = "popart_jax executable"
_META, _VARIABLES, _CODE = "metadata.json", "variables.npz", "executable/"
_MAIN = "main"


def write(
    path: Path,
    key: str,
    executables: Mapping[str, Any],
    variables: Mapping[str, np.ndarray] | None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a container.

    Parameters
    ----------
    path : Path
        File to write; it is complete or absent, never half written.
    key : str
        What the executables depend on, in short.
    executables : mapping of str to jax.stages.Compiled
        By handle; their arguments and results are flat.
    variables : mapping of str to array, optional
        Values to store with them.
    notes : mapping of str to Any, optional
        What to know about executables, by handle; anything that JSON can hold.

    Raises
    ------
    popart_exception
        A program has no serialised form, because it calls back into Python, say; there is no file then.
    OSError
        The file can't be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")  # others may write the same file
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            counts = {h: _write_code(archive, h, compiled) for h, compiled in executables.items()}
            facts = {"format": FORMAT, "key": key, "handles": counts, "notes": dict(notes or {})}
            archive.writestr(_META, json.dumps(facts))
            if variables is not None:
                buffer = io.BytesIO()
                np.savez(buffer, **{n: _storable(v) for n, v in variables.items()})  # pyright: ignore[reportArgumentType]
                archive.writestr(_VARIABLES, buffer.getvalue())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)


def _write_code(archive: zipfile.ZipFile, handle: str, compiled: Any) -> tuple[int, int]:
    """Write a program; returns how many arguments and results it has."""
    try:
        code, arguments, results = serialize_executable.serialize(compiled)
    except Exception as err:  # JAX and XLA each have their own, for calls into Python and for kernels they lost
        raise popart_exception(f"The compiled program {handle or _MAIN!r} can't be written to a file: {err}") from err
    archive.writestr(_CODE + (handle or _MAIN), code)
    return arguments.num_leaves, results.num_leaves


def _storable(value: np.ndarray) -> np.ndarray:
    return value if value.dtype.kind != "V" else value.view(np.uint8)


def preload(path: Path) -> None:
    """With ``POPART_PRELOAD_POPEF=full-preload``: read a container once, so that what is taken out of it is at hand."""
    if os.environ.get("POPART_PRELOAD_POPEF") != "full-preload":
        return
    log = module_logger("session")
    log.info("Performing preload of popef file %s", path)
    path.read_bytes()
    log.info("Completed preload of popef file %s", path)


def read_key(path: Path) -> str | None:
    """The key of a container; None if the file is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read(_META))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return meta.get("key") if meta.get("format") == FORMAT else None


def has_code(path: Path) -> bool:
    """Whether a container holds programs."""
    with zipfile.ZipFile(path) as archive:
        return any(name.startswith(_CODE) for name in archive.namelist())


def load(path: Path, handle: str) -> Any:
    """A compiled program from a container, None if it has none by this handle; its arguments and results are flat.

    Raises
    ------
    Exception
        Whatever zip or XLA raise for a damaged file or one of another machine.
    """
    with zipfile.ZipFile(path) as archive:
        counts = json.loads(archive.read(_META))["handles"].get(handle)
        if counts is None:
            return None
        payload = archive.read(_CODE + (handle or _MAIN))
    arguments, results = (tuple(range(n)) for n in counts)
    return serialize_executable.deserialize_and_load(
        payload, jax.tree.structure((arguments, {})), jax.tree.structure(results)
    )


def note(path: Path, handle: str) -> Any:
    """What was noted about a program."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(_META))["notes"][handle]


def load_variables(path: Path) -> dict[str, np.ndarray]:
    """Variables stored in a container."""
    with zipfile.ZipFile(path) as archive:
        if _VARIABLES not in archive.namelist():
            return {}
        with np.load(io.BytesIO(archive.read(_VARIABLES))) as stored:
            return {name: stored[name] for name in stored.files}
