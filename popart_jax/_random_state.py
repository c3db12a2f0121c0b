"""Programs seed NumPy's global generator, build a session and draw data: importing JAX in between must draw nothing."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class _Restoring(Loader):
    """Runs a module's code and puts NumPy's generator back to where it was."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        from numpy import random  # a program that needs no JAX does without

        before = random.get_state()
        try:
            self._loader.exec_module(module)
        finally:
            random.set_state(before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _FirstImport(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "jax":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Restoring(spec.loader)
        return spec


def keep_at_import_of_jax() -> None:
    """See to it that the first import of JAX, wherever it happens, leaves NumPy's generator as it is."""
    if "jax" not in sys.modules:
        sys.meta_path.insert(0, _FirstImport())
