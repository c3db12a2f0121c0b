"""Compiled steps in a file: a zip archive with machine code, facts about it, and variables.

Facts are JSON, variables NumPy's arrays without pickle. Machine code is XLA's own serialised form, which JAX unpickles:
it is looked at only after its seal was found to be this user's (`seal`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from ipu_model.whole_files import replace_file

from ..errors import popart_exception
from ..limits import limits
from ..logs import module_logger
from .seal import require_sealed, sealed

FORMAT = "popart_jax executable"
_META, _SEAL, _VARIABLES, _CODE = "metadata.json", "seal", "variables.npz", "executable/"
_MAIN = "main"
_MOST_FACTS = 1 << 28
"""Bytes of facts above which a file is none of ours."""


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
        A program has no serialised form, because it calls back into Python, say, or there is no key to seal it with;
        there is no file then.
    OSError
        The file can't be written.
    """

    def fill(folder: Path) -> None:
        with zipfile.ZipFile(folder / path.name, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            handles = {h: _write_code(archive, h, compiled) for h, compiled in executables.items()}
            facts = {"format": FORMAT, "key": key, "handles": handles, "notes": dict(notes or {})}
            text = json.dumps(facts).encode()
            archive.writestr(_META, text)
            if handles:
                archive.writestr(_SEAL, sealed(text))
            if variables is not None:
                buffer = io.BytesIO()
                np.savez(buffer, **{n: _storable(v) for n, v in variables.items()})  # pyright: ignore[reportArgumentType]
                archive.writestr(_VARIABLES, buffer.getvalue())

    replace_file(path, fill)


def _write_code(archive: zipfile.ZipFile, handle: str, compiled: Any) -> tuple[int, int, str]:
    """Write a program; returns how many arguments and results it has, and its digest."""
    try:
        code, arguments, results = serialize_executable.serialize(compiled)
    except Exception as err:  # JAX and XLA each have their own, for calls into Python and for kernels they lost
        raise popart_exception(f"The compiled program {handle or _MAIN!r} can't be written to a file: {err}") from err
    archive.writestr(_CODE + (handle or _MAIN), code)
    return arguments.num_leaves, results.num_leaves, hashlib.sha256(code).hexdigest()


def _storable(value: np.ndarray) -> np.ndarray:
    return value if value.dtype.kind != "V" else value.view(np.uint8)


def preload(path: Path) -> None:
    """With ``POPART_PRELOAD_POPEF=full-preload``: read a container once, so that what is taken out of it is at hand."""
    if os.environ.get("POPART_PRELOAD_POPEF") != "full-preload":
        return
    log = module_logger("session")
    log.info("Performing preload of popef file %s", path)
    with contextlib.suppress(OSError):  # another process deleted it
        path.read_bytes()
    log.info("Completed preload of popef file %s", path)


def read_key(path: Path) -> str | None:
    """The key of a container; None if the file is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(_facts(archive, path))
            return meta.get("key") if meta.get("format") == FORMAT else None
    except Exception:  # whatever zip and JSON raise for any other file
        return None


def _facts(archive: zipfile.ZipFile, path: Path) -> bytes:
    if archive.getinfo(_META).file_size > _MOST_FACTS:
        raise popart_exception(f"{path} is no executable of this package.")
    return archive.read(_META)


def has_code(path: Path) -> bool:
    """Whether a container holds programs."""
    with zipfile.ZipFile(path) as archive:
        return any(name.startswith(_CODE) for name in archive.namelist())


@dataclass(frozen=True)
class Sealed:
    """The programs of a file that this user's key sealed.

    Attributes
    ----------
    path : Path
        The file.
    key : str
        The key that its programs must have.
    """

    path: Path
    key: str

    def load(self, handle: str) -> Any:
        """A compiled program, None if there is none by this handle; its arguments and results are flat.

        Raises
        ------
        popart_exception
            It is not sealed by this user, not whole, or has another key.
        Exception
            Whatever zip or XLA raise for a damaged file or one of another machine.
        """
        found = self._trusted["handles"].get(handle)
        if found is None:
            return None
        *counts, digest = found
        with zipfile.ZipFile(self.path) as archive:
            code = archive.read(_CODE + (handle or _MAIN))
        if hashlib.sha256(code).hexdigest() != digest:
            raise popart_exception(f"The program {handle or _MAIN!r} in {self.path} was changed after it was written.")
        arguments, results = (tuple(range(n)) for n in counts)
        return serialize_executable.deserialize_and_load(
            code, jax.tree.structure((arguments, {})), jax.tree.structure(results)
        )

    def note(self, handle: str) -> Any:
        """What was noted about a program, None if nothing was; errors as for `load`."""
        return self._trusted["notes"].get(handle)

    @cached_property
    def _trusted(self) -> Mapping[str, Any]:
        """The facts of the file, trusted; they hold the digests of its programs."""
        with zipfile.ZipFile(self.path) as archive:
            text = _facts(archive, self.path)
            seal = archive.read(_SEAL).decode() if _SEAL in archive.namelist() else ""
        require_sealed(text, seal, str(self.path))
        facts = json.loads(text)
        if facts["key"] != self.key:
            raise popart_exception(f"{self.path} holds the program of key {facts['key']}, not {self.key}.")
        return facts


def load_variables(path: Path) -> dict[str, np.ndarray]:
    """Variables stored in a container.

    Raises
    ------
    popart_exception
        They need more memory than the limit.
    """
    with zipfile.ZipFile(path) as archive:
        if _VARIABLES not in archive.namelist():
            return {}
        limits.check_size((archive.getinfo(_VARIABLES).file_size,), 1, f"The variables in {path}")
        with np.load(io.BytesIO(archive.read(_VARIABLES)), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
