"""`onnx_ir` without the quarter second that importing sympy takes: only arithmetic with symbolic sizes needs it.

`onnx_ir` becomes a lazy module, which runs at the first import. While it runs, it gets a stand-in for sympy, which
imports the real one when a function of it is called or, later, when anything of it is looked up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import Any

_NAME = "onnx_ir"


class _Later(ModuleType):
    """A stand-in for a module."""

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


class _Lean(Loader):
    """Runs a module while sympy is a stand-in."""

    def __init__(self, loader: Loader) -> None:
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
    """Let the first import of `onnx_ir` do without sympy."""
    if _NAME in sys.modules or (spec := find_spec(_NAME)) is None or spec.loader is None:
        return
    spec.loader = LazyLoader(_Lean(spec.loader))
    module = sys.modules[_NAME] = module_from_spec(spec)
    spec.loader.exec_module(module)
