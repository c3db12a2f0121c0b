"""The name of a compiled program: a hash of everything that its machine code depends on.

Values of weights are not part of it, because they are arguments. A program that depends on something without a
description that is the same in every process (a function made at run time, say) has no key and is never cached.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container
from typing import Any, cast

import jax
import onnx
import onnx_ir as ir
from jaxlib.version import __version__ as jaxlib_version

from ..._compat.jax import settings
from ...model.attribute_names import BUILDER_GRAPH, DEBUG_ID
from ...model.files.message import all_graphs
from ...model.files.stripped import StrippedModel
from ...version import __version__
from .described import XLA_VARIABLES, machine, name_of, sources

_VARIABLES = (*XLA_VARIABLES, "POPART", "POPLAR", "POPLIBS")
_CACHE_FOLDERS = ("POPART_CACHE_DIR", "POPXL_CACHE_DIR", "POPART_PRELOAD_POPEF")
_NO_MATTER = ("cache", "log", "traceback", "distributed", "coordination")
_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data")


def program_key(*facts: Any, portable: bool = False) -> str | None:
    """A decimal number of 64 bits; None where a fact can't be described.

    Facts are what tracing reads, or the traced program: numbers, text, arrays, collections, objects with fields. A
    `portable` key is for a file that may be copied to a machine of the same kind; otherwise the sources of this
    package, the environment and the processor are part of it too.
    """
    return name_of(facts, _package(), () if portable else _this_machine())


def model_facts(source: StrippedModel, arguments: Container[str]) -> bytes:
    """Hash of a model without the values of initializers that are program `arguments` and that no trace reads."""
    stripped = onnx.ModelProto()
    stripped.CopyFrom(source.proto)
    digest = hashlib.sha256()
    for tensor in stripped.graph.initializer:
        if tensor.name in arguments:
            for field in _DATA:
                tensor.ClearField(field)  # pyright: ignore[reportArgumentType]
        elif tensor.name in source.fields:
            digest.update(tensor.name.encode() + source.weights[tensor.name].tobytes())
    _forget_counters(stripped)
    digest.update(stripped.SerializeToString(deterministic=True))
    return digest.digest()


def _forget_counters(model: onnx.ModelProto) -> None:
    """Take out what a Builder numbers through the process: the same model built twice has one key."""
    kept = [entry for entry in model.metadata_props if not entry.key.startswith(DEBUG_ID)]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    for graph in all_graphs(model):
        if graph.name.startswith(BUILDER_GRAPH):
            graph.name = BUILDER_GRAPH


def _package() -> tuple[Any, ...]:
    return (
        __version__,
        jax.__version__,
        jaxlib_version,
        [(d.platform, d.device_kind) for d in cast("list[Any]", jax.devices())],
    )


def _this_machine() -> tuple[Any, ...]:
    return _surroundings(), sources(), machine(), onnx.__version__, ir.__version__


def _surroundings() -> tuple[Any, ...]:
    """Environment variables and JAX settings that influence compilation."""
    variables = {n: v for n, v in os.environ.items() if n.startswith(_VARIABLES) and n not in _CACHE_FOLDERS}
    return variables, {n: v for n, v in settings().items() if not any(part in n for part in _NO_MATTER)}
