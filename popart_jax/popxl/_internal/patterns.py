"""Clean-up patterns on PopXL graphs, chosen by level.

Mandatory ones give every operator an executable form; the default ones remove what computes nothing. Operators of other
packages take part through their options: ``to_identity`` (the pattern OpToIdentity replaces the operator),
``unexecutable`` (a reason; a session refuses the operator).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import pattern_rules as rules
from .enums import PatternsLevel as PatternsLevel

MANDATORY: dict[str, Callable[[Any], bool]] = {
    "ConvTranspose": rules.conv_transpose,
    "AllReduceToIdentityPattern": rules.all_reduce_to_identity,
}
DECOMPOSITIONS: dict[str, Callable[[Any], bool]] = {
    "MulArgGradOp": rules.mul_gradient,
    "DivArg0GradOp": rules.div_gradient,
    "SubtractArg1GradOp": rules.subtract_gradient,
    "ExpGradOp": rules.exp_gradient,
}
DEFAULT: dict[str, Callable[[Any], bool]] = {
    "SumToAdd": rules.sum_to_add,
    "SplitGradOpToConcat": rules.split_gradient,
    "OpToIdentity": rules.op_to_identity,
    "PostNRepl": rules.remove_identity,
}


class Pattern:
    """Base of patterns."""


class Patterns:
    """A selection of patterns: a level, and single ones switched on or off."""

    def __init__(self, level: Any = PatternsLevel.Default) -> None:
        if isinstance(level, (list, tuple)):
            self._level, self._switched = PatternsLevel.NoPatterns, dict.fromkeys(map(str, level), True)
        else:
            self._level, self._switched = level, {}

    def isPatternEnabled(self, name: str) -> bool:
        return self._switched.get(name, self._at_level(name))

    def _at_level(self, name: str) -> bool:
        if self._level is PatternsLevel.NoPatterns:
            return False
        return self._level is not PatternsLevel.Minimal or name in MANDATORY

    def enablePattern(self, name: str, on: bool) -> Patterns:
        self._switched[name] = on
        return self

    def enableRuntimeAsserts(self, on: bool) -> Patterns:
        return self

    @staticmethod
    def getAllPreAliasPatternNames() -> list[str]:
        return [*MANDATORY, *DECOMPOSITIONS, *DEFAULT]

    @staticmethod
    def isMandatory(pattern: Any) -> bool:
        return str(pattern) in MANDATORY or str(pattern) in DECOMPOSITIONS


def apply(graph: Any, patterns: Any) -> None:
    """Apply the selected patterns to a graph until nothing changes."""
    selected = [
        fn for name, fn in {**MANDATORY, **DECOMPOSITIONS, **DEFAULT}.items() if patterns.isPatternEnabled(name)
    ]
    while any(_pass(graph, fn) for fn in selected):
        pass


def _pass(graph: Any, fn: Callable[[Any], bool]) -> bool:
    changed = False
    for op in [graph._ops[i] for i in sorted(graph._ops)]:
        if op.id in graph._ops and fn(op):
            changed = True
    return changed


_IN_PLACE: dict[str, tuple[tuple[str, int], ...]] = {
    "AddOp": (("AddLhsInplaceOp", 0), ("AddRhsInplaceOp", 1)),
    "MulOp": (("MulLhsInplaceOp", 0), ("MulRhsInplaceOp", 1)),
    "ExpOp": (("ExpInplaceOp", 0),),
    "ReluOp": (("ReluInplaceOp", 0),),
    "GeluOp": (("GeluInplaceOp", 0),),
    "GeluErfOp": (("GeluErfInplaceOp", 0),),
    "SwishOp": (("SwishInplaceOp", 0),),
    "CeilOp": (("CeilInplaceOp", 0),),
    "FloorOp": (("FloorInplaceOp", 0),),
    "ClipOp": (("ClipInplaceOp", 0),),
    "SignOp": (("SignInplaceOp", 0),),
    "SoftmaxOp": (("SoftmaxInplaceOp", 0),),
}


def apply_inplace(graph: Any) -> None:
    """Replace operators by their in-place forms where the operand is not needed any more."""
    from .schedule import schedule

    order = {op.id: k for k, op in enumerate(schedule(graph))}
    for op in sorted(graph._ops.values(), key=lambda o: order[o.id]):
        for class_name, position in _IN_PLACE.get(op._class_name, ()):
            if rules.may_overwrite(op, position, order):
                rules.make_inplace(op, class_name, position)
                break
