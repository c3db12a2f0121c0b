"""Clean-up patterns on PopXL graphs."""

from __future__ import annotations

from typing import Any

from .enums import PatternsLevel as PatternsLevel


class Patterns:
    """A selection of patterns."""

    def __init__(self, level: Any = PatternsLevel.Default) -> None:
        self._level = level
        self._switched: dict[str, bool] = {}

    def isPatternEnabled(self, name: str) -> bool:
        return self._switched.get(name, True)

    def enablePattern(self, name: str, on: bool) -> Patterns:
        self._switched[name] = on
        return self


def apply(graph: Any, patterns: Patterns) -> None:
    """Apply the selected patterns to a graph."""


def apply_inplace(graph: Any) -> None:
    """Replace operators by their in-place forms where the operand is not needed any more."""
