"""The key of a session's compiled programs, and their file beside JAX's persistent compilation cache.

With a folder for that cache (``JAX_COMPILATION_CACHE_DIR``) JAX spares the second process XLA's work; this file spares
it tracing and lowering as well.
"""

from __future__ import annotations

import inspect
import marshal
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import numpy as np
import onnx_ir as ir

import patterns

from ..._compat.jax import settings
from ...execution import Structure, Type
from ...execution.cache_folder import SUFFIX
from ...execution.container import Sealed
from ...execution.key import model_facts, program_key
from ...logs import module_logger
from ...lowering.read_while_tracing import read_while_tracing
from ...lowering.resolve import find
from ...model.stripped import StrippedModel
from ...model.structure import every_node
from ..requests import Request
from .shards import SHARD

_ON_DEVICES = frozenset({SHARD, "popart_jax.stages"})

TYPES = "types"
_OURS = ("popart_jax.ops.", "popart_jax.lowering.", "jax.", "jaxlib.", "numpy.")
_OTHER_OPTIONS = frozenset({
    "cachePath", "enableEngineCaching", "enableVariablesCaching", "logDir", "compilationProgressLogger",
    "compilationProgressTotal",
})  # fmt: skip


@dataclass(frozen=True)
class Model:
    """What is traced: a model as given, its graph before the patterns, and the initializers that are arguments."""

    source: StrippedModel
    graph: ir.Graph
    opsets: Mapping[str, int]
    variables: Collection[str]

    def arguments(self) -> frozenset[str]:
        """Initializers whose values no trace reads; saved optimizer state, which the graph lacks, is among them."""
        read = read_while_tracing(self.graph, self.opsets) | (self.graph.initializers.keys() - set(self.variables))
        return frozenset(t.name for t in self.source.proto.graph.initializer) - read


def key_of(request: Request, model: Model, *, portable: bool = False) -> str | None:
    """The key of the compiled programs of a session, None where a fact has no description; see `program_key`."""
    device, optimizer = request.device, request.optimizer
    return program_key(
        model_facts(model.source, model.arguments()),
        {n: v for n, v in vars(request.options).items() if n not in _OTHER_OPTIONS},
        (request.data_flow, request.patterns, request.shapes, request.loss, request.strict),
        None if optimizer is None else optimizer.fixed(),
        (device.type, device.numIpus, device.ipuVersion),
        _foreign_translations(model),
        portable=portable,
    )


def cache_file(request: Request, model: Model, structure: Structure) -> Path | None:
    """The file beside JAX's cache for a session's programs.

    None without such a cache, and where something takes part in the programs that no key can name.
    """
    known = settings()
    folder = known["jax_compilation_cache_dir"]
    bounded = known.get("jax_compilation_cache_max_size", -1) != -1  # JAX makes room among the files it knows
    if not folder or "://" in folder or bounded or not known["jax_enable_compilation_cache"]:
        return None
    plain = (
        structure.replicas == 1 and jax.process_count() == 1 and _ON_DEVICES.isdisjoint(request.options.engineOptions)
    )
    if not plain or _foreign_translations(model) or not patterns.are_own(request.patterns.selection):
        return None
    key = key_of(request, model)
    return None if key is None else Path(folder) / f"popart_jax-{key}{SUFFIX}"


def _foreign_translations(model: Model) -> list[tuple[str, bytes]]:
    """Translations that are not this package's: name and code. What else they refer to is not followed."""
    rows = (find(node, model.opsets, popart=True) for node in every_node(model.graph))
    functions = dict.fromkeys(row.fn for row in rows if row is not None)
    names = {f: f"{getattr(f, '__module__', 'jax')}.{getattr(f, '__qualname__', '')}" for f in functions}
    return [(name, _code(inspect.unwrap(f))) for f, name in names.items() if not name.startswith(_OURS)]


def _code(function: Any) -> bytes:
    """The code of a function written in Python, with those of its defaults that are plain values."""
    if not isinstance(function, FunctionType):
        return b""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    plain = [v for v in defaults if isinstance(v, (bool, int, float, str, np.generic))]
    return marshal.dumps(function.__code__, 2) + repr(plain).encode()


def stored_types(path: Path | None) -> dict[str, Type] | None:
    """Types of the tensors, where a file holds them."""
    if path is None or not path.is_file():
        return None
    try:
        found: Mapping[str, Any] = Sealed(path, path.stem).note(TYPES) or {}
    except Exception as err:  # a damaged file, or one that another user sealed
        module_logger("session").warning("Failed to read %s: %s", path, err)
        return None
    return {name: Type(tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in found.items()} or None


def types_note(types: Mapping[str, Type]) -> dict[str, Any]:
    """The same, for JSON."""
    return {name: (kind.shape, kind.dtype.name) for name, kind in types.items()}
