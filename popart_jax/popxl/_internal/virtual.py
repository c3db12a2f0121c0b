"""Modules made at run time, without a file each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType


def module(name: str, doc: str, members: Mapping[str, object]) -> ModuleType:
    """Make a module with these members and enter it into Python's module table.

    As after an import it is an attribute of its package, unless a member has that name (`popxl.ops.gelu`, a function).
    """
    made = ModuleType(name, doc)
    made.__package__, _, last = name.rpartition(".")
    vars(sys.modules[made.__package__]).setdefault(last, made)
    made.__spec__ = ModuleSpec(name, None)
    vars(made).update(members)
    sys.modules[name] = made
    return made
