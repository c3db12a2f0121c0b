"""Where what was traced and compiled for a session is kept: beside JAX's persistent compilation cache.

With a folder for that cache (``JAX_COMPILATION_CACHE_DIR``) JAX spares the second process XLA's work; this spares it
tracing and lowering as well. The key is made of everything that tracing reads, the sources of this package included, so
what is found is what would have been made.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx_ir as ir

import patterns

from ..._compat.jax import settings
from ...execution import Program, Type, container
from ...execution.key import model_facts, program_key
from ...logs import module_logger
from ...lowering.resolve import find
from ...model.lean import LeanModel

SUFFIX = ".popef"
TYPES = "types"
_OURS = ("popart_jax.ops.", "popart_jax.lowering.", "jax.", "jaxlib.", "numpy.")


def place(request: Any, source: LeanModel, program: Program, held: Container[str]) -> Path | None:
    """The file of a session; None where there is no cache, or something takes part that no key tells.

    Parameters
    ----------
    request : Request
        What the session asks for.
    source : LeanModel
        The model as given.
    program : Program
        Its program before the patterns.
    held : container of str
        The initializers that are arguments of the program; the others are constants in it.
    """
    known = settings()
    folder = known["jax_compilation_cache_dir"]
    bounded = known.get("jax_compilation_cache_max_size", -1) != -1  # JAX makes room among the files it knows
    if not folder or "://" in folder or bounded or not known["jax_enable_compilation_cache"]:
        return None
    plain = program.structure.replicas == 1 and jax.process_count() == 1
    if not plain or not is_ours(program) or not patterns.are_own(request.patterns.selection):
        return None
    asked = (request.data_flow, request.options, request.patterns, request.shapes, request.loss, request.optimizer)
    device = (request.device.type, request.device.numIpus, request.device.ipuVersion)
    key = program_key(model_facts(source, held), asked, device)
    return None if key is None else Path(folder) / f"popart_jax-{key}{SUFFIX}"


def is_ours(program: Program) -> bool:
    """Whether all translations are this package's, so that the key tells when they change."""
    rows = (find(node, program.opsets) for node in ir.traversal.RecursiveGraphIterator(program.graph))
    modules = {"" if row is None else getattr(row.fn, "__module__", "jax") for row in rows}
    return all(f"{m}.".startswith(_OURS) for m in modules)


def kept_types(path: Path | None) -> dict[str, Type] | None:
    """Types of the tensors, where they are kept."""
    if path is None or not path.is_file():
        return None
    try:
        found: Mapping[str, Any] = container.note(path, TYPES)
    except Exception as err:  # a damaged file
        module_logger("session").warning("Failed to read %s: %s", path, err)
        return None
    return {name: Type(tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in found.items()}


def note_of(types: Mapping[str, Type]) -> dict[str, Any]:
    """The same, for JSON."""
    return {name: (kind.shape, kind.dtype.name) for name, kind in types.items()}
