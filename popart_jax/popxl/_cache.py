"""Compiling a session's programs, or finding them in the executable cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import jax

from ..execution import Executable, Step, compile_traced, container, from_container, trace
from ..execution.compiled import Traced
from ..logs import module_logger
from ..version import __version__
from ._program import Programs

SUFFIX = ".popef"


def compiled(programs: Programs) -> dict[str, Executable]:
    """Every program ready to run, from the cache where they are there."""
    options = programs.owner._options
    folder = directory(options)
    traced = {name: trace(step) for name, step in programs.steps.items()}
    if folder is None:
        return _compile(traced)
    folder.mkdir(parents=True, exist_ok=True)
    key = program_key(options, traced)
    path = _find(folder, key)
    found = None if path is None else _load(programs.steps, path)
    if found is None:
        found = _compile(traced)
        container.write(folder / f"{key}{SUFFIX}", key, {name: e.call for name, e in found.items()}, None)
    return found


def _compile(traced: dict[str, Traced]) -> dict[str, Executable]:
    module_logger("session").info("Starting compilation")
    return {name: compile_traced(t) for name, t in traced.items()}


def directory(options: Any) -> Path | None:
    """Where executables are kept: the environment decides first, then the options."""
    given = os.environ.get("POPXL_CACHE_DIR") or os.environ.get("POPART_CACHE_DIR")
    if not given and options.enableEngineCaching:
        given = options.cachePath
    return Path(given) if given else None


def program_key(options: Any, traced: dict[str, Traced]) -> str:
    """Decimal hash of the programs and of what else decides their machine code; values of variables are no part."""
    facts = [__version__, jax.__version__, [str(d) for d in jax.devices()], sorted(options.engineOptions.items())]
    digest = hashlib.sha256(repr(facts).encode())
    for name, program in traced.items():
        digest.update(name.encode() + program.traced.lower().as_text().encode())
    return str(int.from_bytes(digest.digest()[:8], "little"))


def _find(folder: Path, key: str) -> Path | None:
    """The file of that key; files of other content are told and skipped."""
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


def _load(steps: dict[str, Step], path: Path) -> dict[str, Executable] | None:
    log = module_logger("session")
    log.info("Loading serialized PopART executable from %s", path)
    container.preload(path)
    try:
        return {name: from_container(step, path, name) for name, step in steps.items()}
    except Exception as err:  # zip, pickle and XLA each have their own
        log.info("Ignoring cache file because it does not contain a usable executable: %s (%s)", path, err)
        return None
