"""Patterns of other packages, found through entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

GROUP = "popart_jax.patterns"


@cache
def load_plugins() -> tuple[str, ...]:
    """Import every module that an installed package registered in the group; its decorators register the rewrites.

    Returns
    -------
    tuple of str
        Names of the entry points, in order.
    """
    found = sorted(entry_points(group=GROUP), key=lambda e: e.name)
    for entry in found:
        entry.load()
    return tuple(entry.name for entry in found)
