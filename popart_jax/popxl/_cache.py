"""Compiling a session's programs, or finding them in the executable cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import jax

from ..execution import container
from ..logs import module_logger
from ..version import __version__
from ._device_state import DeviceState

SUFFIX = ".popef"


def compile_cached(state: DeviceState) -> bool:
    """Make every program of the session ready to run; True when they came from the cache."""
    folder = directory(state.layout.owner._options)
    log = module_logger("session")
    if folder is None:
        log.info("Starting compilation")
        state.compile()
        return False
    folder.mkdir(parents=True, exist_ok=True)
    key = program_key(state)
    path = _find(folder, key)
    if path is not None and _load(state, path):
        return True
    log.info("Starting compilation")
    state.compile()
    container.write(folder / f"{key}{SUFFIX}", key, {name: p.call for name, p in state.programs.items()}, None)
    return False


def directory(options: Any) -> Path | None:
    """Where executables are kept: the environment decides first, then the options."""
    given = os.environ.get("POPXL_CACHE_DIR") or os.environ.get("POPART_CACHE_DIR")
    if not given and options.enableEngineCaching:
        given = options.cachePath
    return Path(given) if given else None


def program_key(state: DeviceState) -> str:
    """Decimal hash of the programs and of what else decides their machine code; values of variables are no part."""
    options = state.layout.owner._options
    facts = [__version__, jax.__version__, [str(d) for d in jax.devices()], sorted(options.engineOptions.items())]
    digest = hashlib.sha256(repr(facts).encode())
    for name, program in state.programs.items():
        digest.update(name.encode() + program.lowered.as_text().encode())
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


def _load(state: DeviceState, path: Path) -> bool:
    log = module_logger("session")
    log.info("Loading serialized PopART executable from %s", path)
    container.preload(path)
    try:
        for name, program in state.programs.items():
            call = container.load(path, name)
            if call is None:
                raise ValueError(f"no program {name!r}")
            program.__dict__["call"] = call
    except Exception as err:  # zip, pickle and XLA each have their own
        log.info("Ignoring cache file because it does not contain a usable executable: %s (%s)", path, err)
        for program in state.programs.values():
            program.__dict__.pop("call", None)
        return False
    return True
