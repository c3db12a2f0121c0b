"""Compiled programs stored in the folder of JAX's persistent compilation cache, so that later processes skip tracing.

With that folder (``JAX_COMPILATION_CACHE_DIR``), JAX saves a second process the compilation by XLA. These files save it
tracing and lowering as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import onnx_ir as ir

from ..._compat.jax import compilation_cache, setting, writes_programs
from ...lowering.resolve import find
from ...model.checks.structure import every_node
from ...ops.kernels import staying
from ...ops.registry import full_name, is_known
from .cache_folder import file_in, keep
from .functions import code_of

T = TypeVar("T")


def folder() -> Path | None:
    """JAX's cache folder; None if there is none, or if it can't hold our files."""
    found = setting("jax_compilation_cache_dir")
    bounded = setting("jax_compilation_cache_max_size", -1) != -1  # JAX then deletes files, but only those it knows
    if not found or "://" in found or bounded or not setting("jax_enable_compilation_cache"):
        return None
    if jax.process_count() > 1:
        return None
    return Path(found)


def file_of(key: str | None) -> Path | None:
    """The file for a program's key; None if there is no key or no folder."""
    place = folder()
    return None if key is None or place is None else file_in(place, key)


def compile_and_keep(
    path: Path | None, compile_: Callable[[], T], write: Callable[[Path, T], None], *, stays: bool = True
) -> T:
    """Compile, and write the file (if any) in the cases in which JAX would, if the program can be serialised.

    JAX's own cache is disabled meanwhile, because XLA can't serialise a program loaded from it again. The file that
    `write` writes is complete or absent. `stays` tells whether the program is not serialised elsewhere either, as far
    as is known; it may then call libraries.
    """
    if path is None:
        with staying(stays and not writes_programs()):
            return compile_()
    started = time.monotonic()
    with compilation_cache(None), staying(False):
        made = compile_()
    if time.monotonic() - started >= setting("jax_persistent_cache_min_compile_time_secs"):
        keep(path, lambda file: write(file, made))
    return made


def foreign_translations(graph: ir.Graph, opsets: Mapping[str, int], *, popart: bool) -> list[tuple[str, Any]]:
    """Name and code of translations that are not this package's."""
    rows = (find(node, opsets, popart=popart) for node in every_node(graph))
    functions = dict.fromkeys(row.fn for row in rows if row is not None)
    return [(full_name(f), code_of(f)) for f in functions if not is_known(f)]
