"""Compiling a session's programs, or finding them in the executable cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import jax

from ..execution import Executable, Step, compile_traced, container, stored, trace
from ..execution.cache_folder import SUFFIX, keep, mark_used
from ..execution.compiled import Traced
from ..execution.key import program_key
from ..launching.agreement import require_same
from ..logs import module_logger
from ._program import Programs


def compiled(programs: Programs) -> dict[str, Executable]:
    """Every program ready to run, from the cache where they are there."""
    options, log = programs.owner._options, module_logger("session")
    folder = directory(options)
    traced = {name: trace(step) for name, step in programs.steps.items()}
    if jax.process_count() > 1:
        texts = {name: t.traced.lower().as_text() for name, t in traced.items()}
        require_same(
            "Ir", {f"program {n}": hashlib.sha256(text.encode()).hexdigest()[:12] for n, text in texts.items()}
        )
    if folder is None:
        return _compile(traced)
    key = program_key({n: t.traced.lower().as_text() for n, t in traced.items()}, options.engineOptions)
    if key is None:
        log.info("The executable is not cached: its engine options can't be described")
        return _compile(traced)
    path = _find(folder, key)
    found = None if path is None else _load(programs.steps, container.Sealed(path, key))
    if found is not None:
        return found
    made = _compile(traced)
    keep(folder / f"{key}{SUFFIX}", lambda path: stored.write(path, key, made))
    return made


def _compile(traced: dict[str, Traced]) -> dict[str, Executable]:
    module_logger("session").info("Starting compilation")
    return {name: compile_traced(t) for name, t in traced.items()}


def directory(options: Any) -> Path | None:
    """Folder of the executable cache: the environment decides first, then the options."""
    given = os.environ.get("POPXL_CACHE_DIR") or os.environ.get("POPART_CACHE_DIR")
    if not given and options.enableEngineCaching:
        given = options.cachePath
    return Path(given) if given else None


def _find(folder: Path, key: str) -> Path | None:
    """The file of that key; files of other content are logged and skipped."""
    log, found = module_logger("session"), None
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        inside = container.read_key(path)
        if inside is None:
            log.info("Ignoring cache file because it does not contain a valid executable: %s", path)
            continue
        log.info("PopEF file inferred to have hash '%s' has been found: %s", path.stem, path)
        if path.stem == key and inside != key:
            log.info("Cache file hash did not match the IR hash: %s", path)
        elif inside == key:
            found = path
    return found


def _load(steps: dict[str, Step], file: container.Sealed) -> dict[str, Executable] | None:
    log = module_logger("session")
    log.info("Loading serialized PopART executable from %s", file.path)
    mark_used(file.path)
    try:
        container.preload(file.path)
        return {name: stored.load(step, file, name) for name, step in steps.items()}
    except Exception as err:  # zip, the seal and XLA each have their own
        log.info("Ignoring cache file because it does not contain a usable executable: %s (%s)", file.path, err)
        return None
