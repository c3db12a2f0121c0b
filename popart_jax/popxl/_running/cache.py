"""Compilation of a session's programs, and the cache of executables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jax
import onnx_ir as ir

from ...execution import Executable, Step, compile_traced, trace
from ...execution.compiled import Traced
from ...execution.stored import beside_jax, container
from ...execution.stored import executables as stored
from ...execution.stored.cache_folder import SUFFIX, keep, mark_used
from ...execution.stored.described import Undescribed, described
from ...execution.stored.graph_facts import graph_facts
from ...execution.stored.key import program_key
from ...launching.agreement import require_same
from ...logs import module_logger
from ...lowering.gradients import TEMPLATE
from ...ops.registry import TRANSLATION
from .._internal.exchange import Part
from .._internal.operands import op_of
from .program import SETTINGS, Programs

_KNOWN_NOTES = {"op", "parts", TRANSLATION, TEMPLATE}


def compiled(programs: Programs) -> dict[str, Executable]:
    """Every program ready to run: from the cache if it has them, else compiled."""
    options = programs.owner._options
    folder, key = directory(options), _key_before_tracing(programs)
    if folder is None:
        path = beside_jax.file_of(key)
        found = _load(programs.steps, path, key) if path is not None and path.is_file() else None
        return found or beside_jax.compile_and_keep(
            path, lambda: _compile(_traced(programs)), lambda file, made: stored.write(file, str(key), made)
        )
    traced = {}
    if key is None:
        traced = _traced(programs)
        key = program_key({n: t.traced.lower().as_text() for n, t in traced.items()}, options.engineOptions)
    path = None if key is None else _find(folder, key)
    found = None if path is None else _load(programs.steps, path, key)
    if found is not None:
        return found
    made = _compile(traced or _traced(programs))
    if key is None:
        module_logger("session").info("The executable is not cached: its engine options can't be described")
    else:
        keep(folder / f"{key}{SUFFIX}", lambda path: stored.write(path, key, made))
    return made


def _traced(programs: Programs) -> dict[str, Traced]:
    """Trace every program, and check that all processes of the job traced the same."""
    traced = {name: trace(step) for name, step in programs.steps.items()}
    if jax.process_count() > 1:
        texts = {name: t.traced.lower().as_text() for name, t in traced.items()}
        require_same(
            "Ir", {f"program {n}": hashlib.sha256(text.encode()).hexdigest()[:12] for n, text in texts.items()}
        )
    return traced


def _key_before_tracing(programs: Programs) -> str | None:
    """A cache key of everything that tracing reads; None where that is impossible and the traced text is the key.

    That is also the case in several processes, which trace in order to compare their programs.
    """
    opsets = SETTINGS.opsets
    if jax.process_count() > 1 or beside_jax.foreign_translations(programs.graph, opsets, popart=False):
        return None
    held = {t._value.name or "" for t in programs.owner.main_graph.variables}
    arrays = {
        n: (dict(s.state), dict(s.fixed), dict(s.fed), dict(s.results), sorted(s.created))
        for n, s in programs.steps.items()
    }
    try:
        graph = graph_facts(programs.graph, opsets, held, _notes)
    except Undescribed:
        return None
    names = {n: v.name for n, v in programs.values.items()}
    scales, options = programs.watches_scales, programs.owner._options.engineOptions
    return program_key(graph, arrays, names, programs.transfers, programs.replicas, scales, options)


def _notes(node: ir.Node) -> str:
    """Key of an operator: its execution context, and the metadata that decides its computation."""
    if unknown := cast("dict[str, Any]", node.meta).keys() - _KNOWN_NOTES:
        raise Undescribed(f"node '{node.name}' has notes of this process: {sorted(unknown)}")
    context = op_of(node)._settings.executionContext
    merged = cast("Sequence[Part]", node.meta.get("parts", ()))
    parts = [(p.op_type, len(p.inputs), {n: a.value for n, a in p.attributes.items()}) for p in merged]
    return described((context, parts, node.meta.get(TRANSLATION), node.meta.get(TEMPLATE)))


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
    """The file of a key; files with other or damaged content are logged and skipped."""
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


def _load(steps: dict[str, Step], path: Path, key: str | None) -> dict[str, Executable] | None:
    log = module_logger("session")
    log.info("Loading serialized PopART executable from %s", path)
    mark_used(path)
    try:
        container.preload(path)
        file = container.Sealed(path, key or "")
        return {name: stored.load(step, file, name) for name, step in steps.items()}
    except Exception as err:  # zip, the seal and XLA each have their own
        log.info("Ignoring cache file because it does not contain a usable executable: %s (%s)", path, err)
        return None
