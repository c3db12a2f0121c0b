"""Compiled programs beside JAX's persistent compilation cache: who finds its own there traces nothing.

With a folder for that cache (``JAX_COMPILATION_CACHE_DIR``) JAX spares the second process XLA's work; these files spare
it tracing and lowering as well.
"""

from __future__ import annotations

import inspect
import marshal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import jax
import numpy as np
import onnx_ir as ir

from .._compat.jax import compilation_cache, setting
from ..lowering.resolve import find
from ..model.structure import every_node
from .cache_folder import SUFFIX, keep

T = TypeVar("T")

_OURS = ("popart_jax.ops.", "popart_jax.lowering.", "jax.", "jaxlib.", "numpy.")


def folder() -> Path | None:
    """JAX's folder; None without one, and where files of ours have no place in it."""
    found = setting("jax_compilation_cache_dir")
    bounded = setting("jax_compilation_cache_max_size", -1) != -1  # JAX makes room among the files it knows
    if not found or "://" in found or bounded or not setting("jax_enable_compilation_cache"):
        return None
    if jax.process_count() > 1:
        return None
    return Path(found)


def file_of(key: str | None) -> Path | None:
    """The file of a program's key; None where it has none, or no place."""
    place = folder()
    return None if key is None or place is None else place / f"popart_jax-{key}{SUFFIX}"


def compile_and_keep(path: Path | None, compile_: Callable[[], T], write: Callable[[Path, T], None]) -> T:
    """Compile, and write a file where JAX would, if it can be written.

    JAX's own cache stays aside meanwhile: XLA can't write again what came from there.

    Parameters
    ----------
    path : Path or None
        The file; None if there shall be none.
    compile_ : callable
        Traces and compiles.
    write : callable
        Writes what that made, whole or not at all.
    """
    if path is None:
        return compile_()
    started = time.monotonic()
    with compilation_cache(None):
        made = compile_()
    if time.monotonic() - started >= setting("jax_persistent_cache_min_compile_time_secs"):
        keep(path, lambda file: write(file, made))
    return made


def foreign_translations(graph: ir.Graph, opsets: Mapping[str, int], *, popart: bool) -> list[tuple[str, bytes]]:
    """Translations that are not this package's: name and code. What else they refer to is not followed."""
    rows = (find(node, opsets, popart=popart) for node in every_node(graph))
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
