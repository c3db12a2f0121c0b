"""Import of our packages ``patterns`` and ``ipu_model`` next to a user's module of that name.

Python searches the script's folder first, so a user's ``patterns.py`` would hide our package. In that case our package
is loaded from its own path at once. Names that it does not have are looked up in the user's module, so that the script
still finds its own names.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from .random_state import random_state_kept

_HOME = Path(__file__).resolve().parent.parent.parent
_NAMES = ("ipu_model", "patterns")


def load_ours() -> None:
    """Load our packages where other modules would be imported under their names; those remain reachable."""
    for name in _NAMES:
        loaded = sys.modules.get(name)
        spec = PathFinder.find_spec(name) if loaded is None else loaded.__spec__
        place = _HOME / name / "__init__.py"
        if spec is not None and not _is_ours(spec) and place.is_file():
            for known in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
                del sys.modules[known]
            _load(name, place, loaded, spec)


def _is_ours(spec: ModuleSpec) -> bool:
    return spec.origin is not None and Path(spec.origin).resolve().is_relative_to(_HOME)


def _load(name: str, place: Path, theirs: ModuleType | None, spec: ModuleSpec) -> None:
    folders = [str(place.parent), *(spec.submodule_search_locations or ())]
    own = importlib.util.spec_from_file_location(name, place, submodule_search_locations=folders)
    assert own is not None
    assert own.loader is not None
    module = importlib.util.module_from_spec(own)
    sys.modules[name] = module
    try:
        with random_state_kept():
            own.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    module.__getattr__ = _fallback(theirs, spec, getattr(module, "__getattr__", None))


def _fallback(theirs: ModuleType | None, spec: ModuleSpec, ours: Any) -> Any:
    """A lookup of names in the user's module, which is executed at the first lookup."""

    def find(name: str) -> Any:
        nonlocal theirs
        if name.startswith("__"):
            raise AttributeError(name)
        if theirs is None:
            theirs = importlib.util.module_from_spec(spec)
            if spec.loader is not None:
                spec.loader.exec_module(theirs)
        try:
            return getattr(theirs, name)
        except AttributeError:
            if ours is None:
                raise
            return ours(name)

    return find
