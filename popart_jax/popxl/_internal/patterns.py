"""Clean-up patterns on PopXL graphs, chosen by level.

Mandatory patterns give every operator an executable form; the default ones remove operators that compute nothing.
Operators of other packages take part through their options: ``to_identity`` (the pattern OpToIdentity replaces the
operator), ``unexecutable`` (a reason; a session refuses the operator).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from patterns import catalogue
from patterns._core import RULES, Rule

from ...session.patterns_api import Patterns as Patterns
from . import pattern_rules as own
from .enums import PatternsLevel as PatternsLevel
from .in_placing import InPlacing
from .rewrite import in_order
from .shared_rewrites import rewrite

OWN: dict[str, Callable[[Any], bool]] = {"ConvTranspose": own.conv_transpose, "OpToIdentity": own.to_identity}
"""Patterns with a form for float8, and those of operators that other packages mark."""

NOT_HERE = {
    "MatMulOp": "three axes are a layout of Poplar's; here a product keeps its operands",
    "ConvDataGrad": "the gradient operator runs as it is",
    "ScanToLoop": "PopXL has no Scan",
    "LoopScanOut": "PopXL's loops have no scan outputs",
    "NlllWithSoftmaxGradDirect": "it joins loss and gradient, which PopXL keeps in two graphs",
    "ViewSimplifyPattern": "views of PopXL are its own",
    "TiedGather": "a form of sessions that train",
    "TiedGatherAccumulate": "a form of sessions that train",
}
"""Patterns of the catalogue that leave PopXL graphs alone, and why."""


class Pattern:
    """Base of patterns."""


def selected_rules(patterns: Patterns) -> list[Rule]:
    """Shared rewrites that are switched on, in order of application."""
    names = [r.name for r in catalogue.rows() if r.name not in NOT_HERE and r.name in patterns.selection]
    return [rule for name in names if name != "ConvTranspose" for rule in RULES.get(name, ()) if "view" in rule.stages]


def apply(graph: Any, patterns: Patterns) -> None:
    """Apply the selected patterns to a graph until nothing changes."""
    for name, fn in OWN.items():
        if name in patterns.selection:
            for op in [graph._ops[i] for i in sorted(graph._ops)]:
                fn(op)
    rewrite(graph, selected_rules(patterns))


def apply_inplace(graph: Any) -> None:
    """Replace operators by their in-place forms where the operand is not needed any more."""
    from .schedule import schedule

    ops = schedule(graph)
    in_order(graph, ops)
    in_placing = InPlacing(graph, ops)
    for op in ops:
        in_placing.apply(op)
