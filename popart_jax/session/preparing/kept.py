"""Where what was traced and compiled for a session is kept: beside JAX's persistent compilation cache.

With a folder for that cache (``JAX_COMPILATION_CACHE_DIR``) JAX spares the second process XLA's work; this spares it
tracing and lowering as well. The key is made of everything that tracing reads, the sources of this package included, so
what is found is what would have been made.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Container, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnx_ir as ir
from jaxlib.version import __version__ as jaxlib_version

import patterns

from ..._compat.jax import settings
from ...execution import Program, Type, container
from ...logs import module_logger
from ...lowering.resolve import find
from ...model.lean import LeanModel

SUFFIX = ".popef"
TYPES = "types"
_OURS = ("popart_jax.ops.", "popart_jax.lowering.", "jax.", "jaxlib.", "numpy.")
_VARIABLES = ("XLA", "POPART", "POPLAR", "POPLIBS", "TF_", "LIBTPU", "CUDA", "ROCM")
_NO_MATTER = ("cache", "log", "traceback", "distributed", "coordination")


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
    return Path(folder) / f"popart_jax-{_key(request, source, held)}{SUFFIX}"


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


def _key(request: Any, source: LeanModel, held: Container[str]) -> str:
    digest = hashlib.sha256(source.proto.SerializeToString(deterministic=True))
    for name in sorted(source.fields):
        if name not in held:
            digest.update(name.encode() + source.weights[name].tobytes())
    device = request.device
    facts = (
        [request.data_flow, request.options, request.patterns, request.shapes, request.loss, request.optimizer],
        [device.type, device.numIpus, device.ipuVersion],
        {n: v for n, v in os.environ.items() if n.startswith(_VARIABLES)},
        {n: v for n, v in settings().items() if not any(part in n for part in _NO_MATTER)},
        _sources(),
        _machine(),
    )
    digest.update(_told(facts).encode())
    return digest.hexdigest()[:32]


def _told(value: Any) -> str:
    """A value with all that it holds, the same in every process; of what can't be told, what is never found again."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_told(k)}: {_told(v)}' for k, v in value.items()))}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_told, value)))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_told, value))}]"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes()!r}"
    if isinstance(value, (str, bytes, int, float, Enum, np.generic, type(None))) or callable(value):
        return repr(value)
    held = {n: getattr(value, n, None) for c in type(value).__mro__ for n in getattr(c, "__slots__", ())}
    held |= getattr(value, "__dict__", {})
    return f"{type(value).__qualname__}{_told(held)}" if held else repr(value)


@cache
def _sources() -> str:
    """Hash of the sources of this package and of `patterns`, by name, size and time."""
    digest = hashlib.sha256()
    for root in (Path(__file__).parents[2], Path(patterns.__file__).parent):
        for folder, _, files in sorted(os.walk(root)):
            for name in sorted(files):
                if name.endswith(".py"):
                    found = os.stat(os.path.join(folder, name))
                    digest.update(f"{folder}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@cache
def _machine() -> tuple[Any, ...]:
    """Versions of what takes part, and the processor."""
    devices = [(d.platform, d.device_kind) for d in jax.devices()]
    try:
        with open("/proc/cpuinfo") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    versions = (sys.version, jax.__version__, jaxlib_version, np.__version__, onnx.__version__, ir.__version__)
    return (*versions, platform.machine(), features, devices)
