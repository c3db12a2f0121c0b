"""Gets a session's compiled programs: from a stored executable, from the compile cache, or by compiling."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..execution.stored import beside_jax
from ..execution.stored import executables as stored
from ..execution.stored.cache_folder import mark_used
from ..execution.stored.container import Sealed
from ..logs import module_logger
from .engine import FORWARD_ONLY, Engine
from .preparing import Prepared
from .preparing.compile_cache import TYPES, types_note
from .start import MAIN
from .stored_programs import StoredPrograms

Handles = tuple[str, ...]


def compile_into(
    engine: Engine, prepared: Prepared, programs: StoredPrograms, variables: dict[str, np.ndarray]
) -> None:
    """Fill the engine with compiled programs; newly compiled ones are stored, with the `variables`."""
    options = prepared.request.options
    handles = (MAIN, FORWARD_ONLY) if options.createImplicitPipeliningFwdOnlyProgram else (MAIN,)
    if programs.path is not None and _load_stored(engine, handles, programs):
        return
    if not _load_cached(engine, handles, prepared.cache_file):
        _compile(engine, handles, prepared, stays=not programs.stores)
    module_logger("devicex").info("Graph compiled")
    programs.store(engine, variables)


def _load_stored(engine: Engine, handles: Handles, programs: StoredPrograms) -> bool:
    log, path = module_logger("session"), programs.path
    try:
        programs.load(engine, handles)
    except Exception as err:  # a damaged file, or one of another machine: XLA has no narrower class
        log.warning("Failed to load cached PopART executable %s: %s", path, err)
        programs.path = None
        return False
    log.info("Loading serialized PopART executable from %s", path)
    return True


def _load_cached(engine: Engine, handles: Handles, path: Path | None) -> bool:
    if path is None or not path.is_file():
        return False
    try:
        engine.compile(handles, Sealed(path, path.stem))
        mark_used(path)
    except Exception as err:  # a damaged file: XLA has no narrower class
        module_logger("session").warning("Failed to load compiled programs from %s: %s", path, err)
        return False
    return True


def _compile(engine: Engine, handles: Handles, prepared: Prepared, *, stays: bool) -> None:
    def write(file: Path, _: None) -> None:
        notes = {TYPES: types_note(prepared.traced_types)}
        stored.write(file, file.stem, engine.executables, None, notes)

    beside_jax.compile_and_keep(prepared.cache_file, lambda: engine.compile(handles), write, stays=stays)
