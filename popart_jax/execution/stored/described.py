"""Descriptions of what a compiled program depends on, the same text in every process. Imports neither JAX nor ONNX."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

_METADATA = (".dist-info", ".egg-info", ".egg-link", ".pth")
_COMPILES = ("jax", "jaxlib", "onnx", "onnx_ir")
XLA_VARIABLES = ("CUDA", "LIBTPU", "ROCM", "TF_", "XLA")
"""Beginnings of the environment variables that XLA reads."""


class Undescribed(Exception):
    """A value has no description that is the same in every process."""


def name_of(*facts: Any) -> str | None:
    """A decimal number of 64 bits that names these facts; None if one of them can't be described."""
    try:
        text = described(facts)
    except Undescribed:
        return None
    return str(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


def described(value: Any) -> str:
    """Describe a value with all that it contains, in the same way in every process.

    An object that only its address identifies raises Undescribed.
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return f"{{{', '.join(sorted(f'{described(k)}: {described(v)}' for k, v in items))}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(described, cast('Iterable[Any]', value))))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(described, cast('Iterable[Any]', value)))}]"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (str, bytes, int, float, Enum, np.generic, np.dtype, type(None))):
        return repr(cast("Any", value))
    if isinstance(value, type) or callable(value):
        return _by_name(value)
    found = fields_of(value)
    if found is not None:
        return f"{_by_name(type(value))}{described(found)}"
    if type(value).__repr__ is object.__repr__:
        raise Undescribed(f"{value!r} has no fields")
    return repr(value)


def _by_name(value: Any) -> str:
    """Describe a class or function that can be found by its module and name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise Undescribed(f"{value!r} can't be found by its name")
    return f"{module}.{name}"


def fields_of(value: Any) -> dict[str, Any] | None:
    """Fields of an object; None if its class is not written in Python."""
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    slots: dict[str, Any] = {
        n: getattr(value, n, None) for c in type(value).__mro__ for n in getattr(c, "__slots__", ())
    }
    return {**slots, **vars(value)} if hasattr(value, "__dict__") else slots or None


@cache
def sources() -> str:
    """Hash of the sources of this package and of `patterns`: names, sizes and modification times."""
    digest = hashlib.sha256()
    found = find_spec("patterns")  # an import would take longer
    assert found is not None
    assert found.origin is not None
    for root in (Path(__file__).parents[2], Path(found.origin).parent):
        for folder, _, files in sorted(os.walk(root)):
            for name in sorted(files):
                if name.endswith(".py"):
                    file = os.stat(os.path.join(folder, name))
                    digest.update(f"{folder}/{name} {file.st_size} {file.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@cache
def machine() -> tuple[Any, ...]:
    """Python, NumPy and the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return sys.version, np.__version__, platform.machine(), features


def installed() -> list[Any]:
    """Names of installed packages' metadata, which contain versions, and files of the packages that compile."""
    folders = [folder for folder in sys.path if os.path.isdir(folder or ".")]
    found: list[Any] = [sorted(n for n in os.listdir(folder or ".") if n.endswith(_METADATA)) for folder in folders]
    for name in _COMPILES:
        spec = PathFinder.find_spec(name)  # not `import`: `onnx_ir` is imported lazily
        if spec is not None and spec.origin is not None:
            file = os.stat(spec.origin)
            found.append((spec.origin, file.st_size, file.st_mtime_ns))
    return found
