"""The name of a compiled program: a hash of everything that its machine code depends on.

Values of weights are no part of it, because they are arguments. What has no description that is the same in every
process (a function made at run time, say) has no key: such a program is compiled anew each time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Container, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnx_ir as ir
from jaxlib.version import __version__ as jaxlib_version

from .._compat.jax import settings
from ..model.stripped import StrippedModel
from ..version import __version__

_VARIABLES = ("XLA", "POPART", "POPLAR", "POPLIBS", "TF_", "LIBTPU", "CUDA", "ROCM")
_CACHE_FOLDERS = ("POPART_CACHE_DIR", "POPXL_CACHE_DIR", "POPART_PRELOAD_POPEF")
_NO_MATTER = ("cache", "log", "traceback", "distributed", "coordination")
_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data")


def program_key(*facts: Any, portable: bool = False) -> str | None:
    """A decimal number of 64 bits; None where a fact can't be described.

    Parameters
    ----------
    *facts
        What tracing reads, or the program as it was traced: numbers, text, arrays, collections, objects with fields.
    portable : bool
        For a file that may be carried to a machine of the same kind. Otherwise the sources of this package, its
        environment and the processor are part of the key too.
    """
    try:
        text = described((facts, _package(), () if portable else (_surroundings(), _sources(), _machine())))
    except Undescribed:
        return None
    return str(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


class Undescribed(Exception):
    """A value has no description that is the same in every process."""


def described(value: Any) -> str:
    """A value with all that it contains, the same in every process.

    Raises
    ------
    Undescribed
        It contains something whose only name is its address.
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{described(k)}: {described(v)}' for k, v in value.items()))}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(described, value)))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(described, value))}]"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (str, bytes, int, float, Enum, np.generic, np.dtype, type(None))):
        return repr(value)
    if isinstance(value, type) or callable(value):
        return _by_name(value)
    found = _fields(value)
    if found is not None:
        return f"{_by_name(type(value))}{described(found)}"
    if type(value).__repr__ is object.__repr__:
        raise Undescribed(f"{value!r} has no fields")
    return repr(value)


def _by_name(value: Any) -> str:
    """A class or function that its module knows by its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise Undescribed(f"{value!r} can't be found by its name")
    return f"{module}.{name}"


def _fields(value: Any) -> dict[str, Any] | None:
    """Fields of an object; None for one of a class that is not written in Python."""
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    slots = {n: getattr(value, n, None) for c in type(value).__mro__ for n in getattr(c, "__slots__", ())}
    return slots | vars(value) if hasattr(value, "__dict__") else slots or None


def model_facts(source: StrippedModel, arguments: Container[str]) -> bytes:
    """A model without the values of the initializers that are `arguments` of the program and read by no trace."""
    stripped = onnx.ModelProto()
    stripped.CopyFrom(source.proto)
    digest = hashlib.sha256()
    for tensor in stripped.graph.initializer:
        if tensor.name in arguments:
            for field in _DATA:
                tensor.ClearField(field)  # pyright: ignore[reportArgumentType]
        elif tensor.name in source.fields:
            digest.update(tensor.name.encode() + source.weights[tensor.name].tobytes())
    digest.update(stripped.SerializeToString(deterministic=True))
    return digest.digest()


def _package() -> tuple[Any, ...]:
    return __version__, jax.__version__, jaxlib_version, [(d.platform, d.device_kind) for d in jax.devices()]


def _surroundings() -> tuple[Any, ...]:
    """Environment variables and JAX's settings."""
    variables = {n: v for n, v in os.environ.items() if n.startswith(_VARIABLES) and n not in _CACHE_FOLDERS}
    return variables, {n: v for n, v in settings().items() if not any(part in n for part in _NO_MATTER)}


@cache
def _sources() -> str:
    """Hash of the sources of this package and of `patterns`, by name, size and time."""
    digest = hashlib.sha256()
    found = find_spec("patterns")  # importing them takes longer
    assert found is not None
    assert found.origin is not None
    for root in (Path(__file__).parents[1], Path(found.origin).parent):
        for folder, _, files in sorted(os.walk(root)):
            for name in sorted(files):
                if name.endswith(".py"):
                    file = os.stat(os.path.join(folder, name))
                    digest.update(f"{folder}/{name} {file.st_size} {file.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@cache
def _machine() -> tuple[Any, ...]:
    """Versions of what takes part, and the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return sys.version, np.__version__, onnx.__version__, ir.__version__, platform.machine(), features
