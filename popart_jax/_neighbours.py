"""``patterns`` and ``ipu_model`` are ours, also beside a user's file of that name.

Python looks for a module beside the script first, so a script's own ``patterns.py`` would stand in the way of our
package. The finder here answers for the two names with our folders. What our package lacks is looked up in the user's
file, so that the script still finds its own names.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_HOME = Path(__file__).resolve().parent.parent
_NAMES = ("ipu_model", "patterns")


class _Ours(MetaPathFinder):
    """Finds our packages by their names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = _HOME / fullname / "__init__.py"
        if fullname not in _NAMES or not place.is_file():
            return None
        loader = _Loader(fullname, str(place))
        return importlib.util.spec_from_file_location(
            fullname, place, loader=loader, submodule_search_locations=[str(place.parent)]
        )


class _Loader(SourceFileLoader):
    """Loads our package; attributes that it lacks come from the user's module of that name, if there is one."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        found = _FOREIGN.pop(module.__name__, None) or _neighbour(module.__name__)
        if found is not None:
            module.__getattr__ = _fallback(found, getattr(module, "__getattr__", None))


_FOREIGN: dict[str, ModuleType] = {}
"""Modules of users that were imported under our names before us."""


def _neighbour(name: str) -> ModuleType | None:
    """The user's module, not yet run."""
    spec = PathFinder.find_spec(name)
    if spec is None or spec.loader is None or spec.origin is None or Path(spec.origin).resolve().is_relative_to(_HOME):
        return None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__popart_jax_loader__"] = spec.loader
    return module


def _fallback(theirs: ModuleType, ours: Any) -> Any:
    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        loader = theirs.__dict__.pop("__popart_jax_loader__", None)
        if loader is not None:
            loader.exec_module(theirs)
        try:
            return getattr(theirs, name)
        except AttributeError:
            if ours is None:
                raise
            return ours(name)

    return find


def install() -> None:
    """Answer for our names from now on; what a user imported under them before stays reachable."""
    if any(isinstance(f, _Ours) for f in sys.meta_path):
        return
    for name in _NAMES:
        module = sys.modules.get(name)
        place = getattr(module, "__file__", None)
        if module is not None and place is not None and not Path(place).resolve().is_relative_to(_HOME):
            _FOREIGN[name] = sys.modules.pop(name)
    sys.meta_path.insert(0, _Ours())
