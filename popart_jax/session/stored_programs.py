"""Compiled programs in files: the engine cache of `cachePath`, and executables that programs export and import."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .._compat.jax import compilation_cache
from ..enums import DeviceType
from ..errors import popart_exception, popart_runtime_error
from ..execution.stored import container
from ..execution.stored import executables as stored
from ..execution.stored.cache_folder import SUFFIX, keep, mark_used
from ..ops.kernels import staying
from .devices.devices import DeviceInfo
from .engine import Engine
from .preparing import Prepared

_SAVABLE = (DeviceType.Ipu, DeviceType.OfflineIpu)


class StoredPrograms:
    """The files that a session's compiled programs are read from and written to."""

    def __init__(self, prepared: Prepared) -> None:
        request = prepared.request
        usable = request.device.type in _SAVABLE and request.options.enableEngineCaching and request.options.cachePath
        self._folder = Path(request.options.cachePath).expanduser() if usable else None
        self._prepared = prepared
        self.path: Path | None = None  # the file that holds the programs of this very session, if there is one
        self.find()

    def find(self) -> None:
        """Look for this session's programs in `cachePath`."""
        self.path = None if self._folder is None else self._find_file(self._folder)
        if self.path is not None:
            container.preload(self.path)

    def _find_file(self, folder: Path) -> Path | None:
        key = self._prepared.key
        if folder.is_file():
            candidates = [folder]
        else:
            mine = folder / f"{key}{SUFFIX}"
            others = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
            candidates = [mine, *(p for p in others if p != mine)]
        return next((p for p in candidates if p.is_file() and _could_be(p, key)), None)

    @property
    def stores(self) -> bool:
        """Whether programs are written to `cachePath` when they have been compiled."""
        return self._folder is not None and not self._folder.is_file()

    def load(self, engine: Engine, handles: tuple[str, ...]) -> None:
        """Fill the engine from the file; if it holds no code, compile, with JAX's own cache.

        Raises an error of any kind for a damaged file, one of another machine, or one that this user did not seal.
        """
        assert self.path is not None
        file = container.Sealed(self.path, str(self._prepared.key))
        with staying(False):
            engine.compile(handles, file if container.has_code(self.path) else None)
        mark_used(self.path)

    def store(self, engine: Engine, variables: dict[str, np.ndarray]) -> None:
        """Write what was just compiled; `cachePath` holds containers alone, as programs count its files.

        Where JAX has a compilation cache of its own (``JAX_COMPILATION_CACHE_DIR``), a program that came out of it
        stays there: XLA can't write it again.
        """
        if self._folder is None or not self.stores:
            return
        key = self._prepared.key
        values = variables if self._prepared.request.options.enableVariablesCaching else None
        made = engine.executables if engine.portable else {}
        keep(self._folder / f"{key}{SUFFIX}", lambda path: stored.write(path, key, made, values))

    def save(self, path: str, engine: Engine | None, variables: dict[str, np.ndarray] | None) -> None:
        """Write compiled programs, and variables if there are any, to a file or into a folder.

        If nothing was compiled it raises popart_runtime_error.
        """
        if engine is None or not engine.programs:
            raise popart_runtime_error("No compiled executable to save. Did you forget to call prepareDevice()?")
        target = _target(path, "executable")
        made = engine
        if not engine.portable:
            made = Engine(engine.prepared)  # another one, since this one's weights are in the order of its programs
            with compilation_cache(None), staying(False):
                made.compile(tuple(engine.programs))
        stored.write(target, self._prepared.key, made.executables, variables)

    def save_variables(self, path: str, variables: dict[str, np.ndarray]) -> None:
        """Write variables alone."""
        stored.write(_target(path, "variables"), self._prepared.key, {}, variables)

    def open(self, filename: str) -> dict[str, np.ndarray]:
        """Take the programs of a file from now on; returns its variables.

        A file that is not there, or that is of another session, raises popart_exception.
        """
        path = Path(filename).expanduser()
        path = path / f"executable{SUFFIX}" if path.is_dir() else path
        if not path.is_file():
            raise popart_exception(f"Failed to open the executable file '{filename}': there is no such file.")
        key = container.read_key(path)
        if key is None:
            raise popart_exception(f"The file '{filename}' is no executable of this package.")
        if key != self._prepared.key:
            raise popart_exception(
                f"The executable in '{filename}' was compiled for another model, options, device or version."
            )
        self.path = path
        return container.load_variables(path)


def require_savable(device: DeviceInfo) -> None:
    """Raise popart_exception unless programs for this kind of device can be saved."""
    if device.type not in _SAVABLE:
        raise popart_exception(f"Executables for device type {device.type} cannot be saved")


def _could_be(path: Path, key: str) -> bool:
    found = container.read_key(path)
    return found == key or (found is None and path.stem == key)


def _target(path: str, name: str) -> Path:
    target = Path(path).expanduser()
    if target.is_dir():
        return target / f"{name}{SUFFIX}"
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
