"""Imports `onnx_ir` without sympy, which takes a quarter of a second and is only needed for symbolic sizes.

`onnx_ir` becomes a lazy module, which is executed at its first use. Meanwhile a placeholder stands for sympy; it
imports the real one when a function of it is called or, later, when an attribute of it is read.

The inliner of `onnx_ir` tries suffixes of a name one after another from 2, which is quadratic in the number of calls:
`quick_names` starts where the last search ended, and finds the same names.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Generator
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import Any

_NAME = "onnx_ir"


class _Later(ModuleType):
    """A placeholder for a module that is imported on use."""

    importing = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.importing:
            return _called_later(self.__name__, name)
        return getattr(importlib.import_module(self.__name__), name)


def _called_later(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call


class _Lean:
    """A loader that executes a module with a placeholder for sympy; no `importlib.abc`, which is slow to import."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        if "sympy" in sys.modules:
            self._loader.exec_module(module)
            return
        later = sys.modules["sympy"] = _Later("sympy")
        try:
            self._loader.exec_module(module)
        finally:
            later.importing = False
            if sys.modules.get("sympy") is later:
                del sys.modules["sympy"]


def import_lean() -> None:
    """Make the first import of `onnx_ir` avoid importing sympy."""
    if _NAME in sys.modules or (spec := find_spec(_NAME)) is None or spec.loader is None:
        return
    spec.loader = LazyLoader(_Lean(spec.loader))  # pyright: ignore[reportArgumentType]
    module = sys.modules[_NAME] = module_from_spec(spec)
    spec.loader.exec_module(module)


_NAMING = threading.RLock()


@contextlib.contextmanager
def quick_names() -> Generator[None]:
    """A scope in which the inliner finds new names in constant time; one thread at a time."""
    from onnx_ir.passes.common import inliner

    with _NAMING:
        before, latest = inliner._make_unique_name, dict[tuple[int, str], int]()

        def unique(name: str, callstack: object, used_names: set[str]) -> str:
            candidate, number = name, latest.get((id(used_names), name), 1)
            while candidate in used_names:
                number += 1
                candidate = f"{name}_{number}"
            latest[id(used_names), name] = number
            used_names.add(candidate)
            return candidate

        inliner._make_unique_name = unique
        try:
            yield
        finally:
            inliner._make_unique_name = before
