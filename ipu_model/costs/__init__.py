"""Prices of JAX primitives: one table, filled by families of rules found through entry points."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Mapping
from importlib import metadata

from ipu_model.costs.rule import Context, OpCost, Rule, Superstep

__all__ = ["ENTRY_POINT_GROUP", "Context", "OpCost", "Rule", "Superstep", "rules"]

ENTRY_POINT_GROUP = "popart_jax.cost_rules"
FAMILIES = (
    "elementwise", "reduction", "linear", "layout", "indexing", "sorting", "random", "cumulative", "windows",
    "solvers", "collectives", "transfers",
)  # fmt: skip
BUILTIN = {name: f"ipu_model.costs.{name}:RULES" for name in FAMILIES}

log = logging.getLogger("ipu_model.costs")


@functools.cache
def rules() -> Mapping[str, Rule]:
    """Rule of each primitive by name.

    Built-in rules use the same entry point group as plug-ins; a plug-in's rule replaces a built-in one and says so.
    """
    table: dict[str, Rule] = {}
    owner: dict[str, str] = {}
    found = {e.name: e.load for e in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    for name, where in BUILTIN.items():  # a source tree that was never installed has no entry points
        found.setdefault(name, functools.partial(_load, where))
    for name in sorted(found, key=lambda n: n not in BUILTIN):
        try:
            family = dict(found[name]())
        except Exception:
            log.warning("cost rules %r could not be loaded and are left out", name, exc_info=True)
            continue
        for primitive in family:
            if primitive in table:
                log.info("rule for %r: %s replaces %s", primitive, name, owner[primitive])
            owner[primitive] = name
        table.update(family)
    return table


def _load(where: str) -> Mapping[str, Rule]:
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)
