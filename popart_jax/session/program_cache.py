"""Compiled programs of a session in the file that `preparing.kept` found a place for."""

from __future__ import annotations

import time

from .._compat.jax import compilation_cache, settings
from ..execution import stored
from ..logs import module_logger
from .engine import Engine
from .preparing import Prepared
from .preparing.kept import TYPES, is_ours, note_of


def load(engine: Engine, handles: tuple[str, ...], prepared: Prepared) -> bool:
    """Fill the engine from the file, if it is there and can be used."""
    path = prepared.kept
    if path is None or not path.is_file() or not is_ours(prepared.program):
        return False
    try:
        engine.compile(handles, path)
    except Exception as err:  # a damaged file: XLA has no narrower class
        module_logger("session").warning("Failed to load compiled programs from %s: %s", path, err)
        return False
    return True


def fill(engine: Engine, handles: tuple[str, ...], prepared: Prepared) -> None:
    """Compile, and keep what JAX would keep where it can be written.

    JAX's own cache stays aside meanwhile: XLA can't write again what came from there.
    """
    path, started = prepared.kept, time.monotonic()
    if path is None or not is_ours(prepared.program):
        engine.compile(handles)
        return
    with compilation_cache(None):
        engine.compile(handles)
    if time.monotonic() - started < settings()["jax_persistent_cache_min_compile_time_secs"]:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.write(path, path.stem, engine.executables, None, {TYPES: note_of(prepared.traced_types)})
    except Exception as err:  # no room, no right to write, or calls into Python, which no file can hold
        module_logger("session").debug("Compiled programs are not kept in %s: %s", path, err)
