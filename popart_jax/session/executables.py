"""Executables on disk: export, import, and the engine cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .._calls import checked
from .._compat.jax import compilation_cache
from ..enums import DeviceType
from ..errors import popart_exception, popart_runtime_error
from ..execution import container, stored
from ..execution.key import model_facts, program_key
from ..logs import module_logger
from .engine import Engine
from .files import makedirsAndCheckWritable
from .preparing import Prepared
from .preparing.kept import SUFFIX

_SAVABLE = (DeviceType.Ipu, DeviceType.OfflineIpu)
_NOT_IN_KEY = ("cachePath", "enableEngineCaching", "enableVariablesCaching", "logDir")


def executable_key(prepared: Prepared) -> str:
    """Decimal hash of everything that the compiled step depends on; values of weights are no part of it."""
    request = prepared.request
    hyper, optimizer = prepared.hyper, request.optimizer
    constants = None if optimizer is None or hyper is None else (hyper.places, hyper.shown, optimizer._structure())
    key = program_key(
        model_facts(prepared.source, prepared.held),
        {k: v for k, v in vars(request.options).items() if k not in _NOT_IN_KEY},
        request.data_flow,
        request.loss,
        type(optimizer).__name__,
        constants,
        prepared.program.training and prepared.program.training.clips,
        request.patterns.selection.enabled,
        (request.device.type, request.device.numIpus, request.device.ipuVersion),
        portable=True,
    )
    assert key is not None  # all of this is plain data
    return key


class EngineCache:
    """Containers of compiled programs in `cachePath`."""

    def __init__(self, prepared: Prepared) -> None:
        options = prepared.request.options
        usable = prepared.request.device.type in _SAVABLE and options.enableEngineCaching and options.cachePath
        self._folder = Path(options.cachePath).expanduser() if usable else None
        self._prepared = prepared

    def find(self) -> Path | None:
        """The container of this very session, if there is one."""
        if self._folder is None:
            return None
        if self._folder.is_file():
            candidates = [self._folder]
        else:
            mine = self._folder / f"{executable_key(self._prepared)}{SUFFIX}"
            others = sorted(self._folder.glob(f"*{SUFFIX}")) if self._folder.is_dir() else []
            candidates = [mine, *(p for p in others if p != mine)]
        key = executable_key(self._prepared)
        found = next((p for p in candidates if p.is_file() and _could_be(p, key)), None)
        if found is not None:
            container.preload(found)
        return found

    def load(self, engine: Engine, handles: tuple[str, ...], stored: Path) -> None:
        """Fill the engine from a container; without code in it, by compiling with JAX's own cache behind.

        Raises
        ------
        Exception
            A damaged file, or one of another machine.
        """
        engine.compile(handles, stored if container.has_code(stored) else None)

    def store(self, engine: Engine, variables: dict[str, np.ndarray]) -> None:
        """Keep what was just compiled; `cachePath` holds containers alone, as programs count its files.

        Where JAX has a compilation cache of its own (``JAX_COMPILATION_CACHE_DIR``), a program that came out of it
        stays there: XLA can't write it again.
        """
        if self._folder is None or self._folder.is_file():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        key = executable_key(self._prepared)
        keep = variables if self._prepared.request.options.enableVariablesCaching else None
        try:
            stored.write(self._folder / f"{key}{SUFFIX}", key, engine.executables if engine.portable else {}, keep)
        except popart_exception as err:
            module_logger("session").info("The executable is not cached: %s", err)


def _could_be(path: Path, key: str) -> bool:
    found = container.read_key(path)
    return found == key or (found is None and path.stem == key)


class ExecutableMethods:
    """Export and import of a session's compiled programs."""

    _prepared: Prepared
    _request: Any
    _engine: Engine | None
    _weights: Any
    _stored: Path | None
    _from_cache: bool

    def prepareDevice(self, loadEngine: bool = True, err: Any = None) -> None:
        """Compile; see the session."""
        raise NotImplementedError

    @checked
    def compileAndExport(self, filename: str, err: Any = None) -> None:
        """Compile, and write the compiled programs to a file (or into an existing directory).

        Raises
        ------
        popart_exception
            The device is no IPU.
        OSError
            The target can't be written.
        """
        self._require_savable()
        makedirsAndCheckWritable(filename)
        if self._engine is None:
            self.prepareDevice(False)
        self.saveExecutable(filename)

    @checked
    def saveExecutable(self, path: str, savePopartMetadata: bool = True, saveVariables: bool = True) -> None:
        """Write the compiled programs, and the variables if asked for.

        Raises
        ------
        popart_exception
            The device is no IPU.
        popart_runtime_error
            Nothing was compiled.
        """
        self._require_savable()
        if self._engine is None or not self._engine.programs:
            raise popart_runtime_error("No compiled executable to save. Did you forget to call prepareDevice()?")
        target = _target(path, "executable")
        if not self._engine.portable:
            with compilation_cache(None):
                self._engine.compile(tuple(self._engine.programs))
        variables = self._weights.copy if saveVariables else None
        stored.write(target, executable_key(self._prepared), self._engine.executables, variables)

    @checked
    def saveVariables(self, path: str) -> None:
        """Write the host copy of all variables."""
        self._require_savable()
        container.write(_target(path, "variables"), executable_key(self._prepared), {}, self._weights.copy)

    @checked
    def loadExecutable(self, filename: str) -> None:
        """Take the compiled programs from a file; `prepareDevice` then does not compile.

        Raises
        ------
        popart_exception
            No such file, or one of another session.
        """
        path = Path(filename).expanduser()
        path = path / f"executable{SUFFIX}" if path.is_dir() else path
        if not path.is_file():
            raise popart_exception(f"Failed to open the executable file '{filename}': there is no such file.")
        key = container.read_key(path)
        if key is None:
            raise popart_exception(f"The file '{filename}' is no executable of this package.")
        if key != executable_key(self._prepared):
            raise popart_exception(
                f"The executable in '{filename}' was compiled for another model, options, device or version."
            )
        self._stored, self._from_cache = path, True
        stored = container.load_variables(path)
        self._weights.copy.update({n: v for n, v in stored.items() if n in self._prepared.held})

    def _require_savable(self) -> None:
        if self._request.device.type not in _SAVABLE:
            raise popart_exception(f"Executables for device type {self._request.device.type} cannot be saved")


def _target(path: str, name: str) -> Path:
    target = Path(path).expanduser()
    if target.is_dir():
        return target / f"{name}{SUFFIX}"
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
