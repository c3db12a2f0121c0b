"""The key of a session's compiled programs, and their file beside JAX's persistent compilation cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import patterns

from ...enums import DeviceType
from ...execution import Structure, Type
from ...execution.stored.beside_jax import file_of, folder, foreign_translations
from ...execution.stored.container import Sealed
from ...execution.stored.functions import code_of
from ...execution.stored.key import model_facts, program_key
from ...logs import module_logger
from ...lowering.read_while_tracing import read_while_tracing
from ...model.files.stripped import StrippedModel
from ..checks.options import IPU_LIKE
from ..options.engine_options import SHARD, STAGES
from ..requests import Request

_ON_DEVICES = frozenset({SHARD, STAGES})

TYPES = "types"
_OTHER_OPTIONS = frozenset({
    "cachePath", "enableEngineCaching", "enableVariablesCaching", "logDir", "compilationProgressLogger",
    "compilationProgressTotal",
})  # fmt: skip


@dataclass(frozen=True)
class Model:
    """The traced model: as given, its graph before the patterns, and the initializers that are arguments."""

    source: StrippedModel
    graph: ir.Graph
    opsets: Mapping[str, int]
    variables: Collection[str]

    def arguments(self) -> frozenset[str]:
        """Initializers that are arguments: tracing does not read their values. Includes saved optimizer state."""
        read = read_while_tracing(self.graph, self.opsets) | (self.graph.initializers.keys() - set(self.variables))
        return frozenset(t.name for t in self.source.proto.graph.initializer) - read


def key_of(request: Request, model: Model, *, portable: bool = False) -> str | None:
    """The key of a session's compiled programs; None if a fact can't be described. See `program_key`."""
    device, optimizer = request.device, request.optimizer
    return program_key(
        model_facts(model.source, model.arguments()),
        {n: v for n, v in vars(request.options).items() if n not in _OTHER_OPTIONS},
        (request.data_flow, request.patterns, request.shapes, request.loss, request.strict),
        None if optimizer is None else optimizer.fixed(),
        (DeviceType.Ipu if device.type in IPU_LIKE else device.type, device.numIpus, device.ipuVersion),
        foreign_translations(model.graph, model.opsets, popart=True),
        [(rule.pattern, code_of(rule.rewrite)) for rule in patterns.added_rules(request.patterns.selection)],
        portable=portable,
    )


def cache_file(request: Request, model: Model, structure: Structure) -> Path | None:
    """The file beside JAX's cache for a session's programs.

    None without such a cache, and where the programs depend on something that no key can describe.
    """
    if folder() is None:
        return None
    plain = structure.replicas == 1 and _ON_DEVICES.isdisjoint(request.options.engineOptions)
    if (
        not plain
        or foreign_translations(model.graph, model.opsets, popart=True)
        or patterns.added_rules(request.patterns.selection)
    ):
        return None
    return file_of(key_of(request, model))


def stored_types(path: Path | None) -> dict[str, Type] | None:
    """Types of the tensors, read from a file of the cache; None if it has none."""
    if path is None or not path.is_file():
        return None
    try:
        found: Mapping[str, Any] = Sealed(path, path.stem).note(TYPES) or {}
    except Exception as err:  # a damaged file, or one that another user sealed
        module_logger("session").warning("Failed to read %s: %s", path, err)
        return None
    return {name: Type(tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in found.items()} or None


def types_note(types: Mapping[str, Type]) -> dict[str, Any]:
    """Types as JSON data."""
    return {name: (kind.shape, kind.dtype.name) for name, kind in types.items()}
