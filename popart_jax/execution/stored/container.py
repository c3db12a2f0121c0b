"""Container files for compiled steps: a zip archive with machine code, metadata and variables.

Metadata are JSON, variables NumPy arrays without pickle. Machine code is XLA's serialised form, which JAX unpickles: it
is only read after its seal was found to be this user's (`seal`). JAX is imported when a JAX program is written or
loaded; a start from a file (`session.start`) does without.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from ipu_model.whole_files import replace_file

from ...errors import popart_exception
from ...limits import limits
from ...logs import module_logger
from .seal import require_sealed, sealed

FORMAT = "popart_jax executable"
_META, _SEAL, _VARIABLES, _CODE = "metadata.json", "seal", "variables.npz", "executable/"
_MAIN = "main"
_MOST_FACTS = 1 << 28
"""Largest size of the metadata in bytes; a file with more is not ours."""


def write(
    path: Path,
    key: str,
    executables: Mapping[str, Any],
    variables: Mapping[str, np.ndarray] | None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a container; the file is complete or absent, never half written.

    `key` is the hash of everything that the executables depend on. Those come by handle, with flat arguments and
    results; bytes are written unchanged, for `Sealed.code`. Notes, also by handle, are any JSON value. Raises
    popart_exception, and writes no file, where a program can't be serialised, for instance because it calls back into
    Python, or there is no key to seal it with; OSError where the file can't be written.
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
    """Write a program; returns its numbers of arguments and results, and its digest."""
    code, arguments, results = (compiled, 0, 0) if isinstance(compiled, bytes) else _serialized(handle, compiled)
    archive.writestr(_CODE + (handle or _MAIN), code)
    return arguments, results, hashlib.sha256(code).hexdigest()


def _serialized(handle: str, compiled: Any) -> tuple[bytes, int, int]:
    from jax.experimental import serialize_executable

    try:
        code, arguments, results = cast("tuple[bytes, Any, Any]", serialize_executable.serialize(compiled))
    except Exception as err:  # JAX and XLA raise errors of different classes here
        raise popart_exception(f"The compiled program {handle or _MAIN!r} can't be written to a file: {err}") from err
    return code, arguments.num_leaves, results.num_leaves


def _storable(value: np.ndarray) -> np.ndarray:
    return value if value.dtype.kind != "V" else value.view(np.uint8)


def preload(path: Path) -> None:
    """With ``POPART_PRELOAD_POPEF=full-preload``: read a container once, so that later reads come from memory."""
    if os.environ.get("POPART_PRELOAD_POPEF") != "full-preload":
        return
    log = module_logger("session")
    log.info("Performing preload of popef file %s", path)
    with contextlib.suppress(OSError):  # another process deleted it
        path.read_bytes()
    log.info("Completed preload of popef file %s", path)


def read_key(path: Path) -> str | None:
    """The key of a container; None if the file is not a container."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(_facts(archive, path))
            return meta.get("key") if meta.get("format") == FORMAT else None
    except Exception:  # zip and JSON raise errors of many classes for other files
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
    """The programs of a file that this user's key sealed."""

    path: Path
    key: str  # the key that the file must have

    def load(self, handle: str) -> Any:
        """A compiled program, None if there is none with this handle; its arguments and results are flat.

        Raises popart_exception where it is not sealed by this user, damaged, or has another key; any error of zip or
        XLA for a damaged file or one from another machine.
        """
        import jax
        from jax.experimental import serialize_executable

        code = self.code(handle)
        if code is None:
            return None
        *counts, _ = self._trusted["handles"][handle]
        arguments, results = (tuple(range(n)) for n in counts)
        tree = cast("Callable[[Any], Any]", jax.tree.structure)
        return serialize_executable.deserialize_and_load(code, tree((arguments, {})), tree(results))

    def code(self, handle: str) -> bytes | None:
        """The stored bytes of a program, None if there is none with this handle; errors as for `load`."""
        found = self._trusted["handles"].get(handle)
        if found is None:
            return None
        with zipfile.ZipFile(self.path) as archive:
            code = archive.read(_CODE + (handle or _MAIN))
        if hashlib.sha256(code).hexdigest() != found[-1]:
            raise popart_exception(f"The program {handle or _MAIN!r} in {self.path} was changed after it was written.")
        return code

    def note(self, handle: str) -> Any:
        """The note about a program, None if there is none; errors as for `load`."""
        return self._trusted["notes"].get(handle)

    @cached_property
    def _trusted(self) -> Mapping[str, Any]:
        """The metadata of the file, after the check of its seal; they contain the digests of its programs."""
        with zipfile.ZipFile(self.path) as archive:
            text = _facts(archive, self.path)
            seal = archive.read(_SEAL).decode() if _SEAL in archive.namelist() else ""
        require_sealed(text, seal, str(self.path))
        facts = json.loads(text)
        if facts["key"] != self.key:
            raise popart_exception(f"{self.path} holds the program of key {facts['key']}, not {self.key}.")
        return facts


def load_variables(path: Path) -> dict[str, np.ndarray]:
    """Variables stored in a container; popart_exception if they need more memory than the limit."""
    with zipfile.ZipFile(path) as archive:
        if _VARIABLES not in archive.namelist():
            return {}
        limits.check_size((archive.getinfo(_VARIABLES).file_size,), 1, f"The variables in {path}")
        with np.load(io.BytesIO(archive.read(_VARIABLES)), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
