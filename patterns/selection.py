"""Which patterns are on: an immutable set and the functions that derive one from another."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from . import catalogue
from ._core import RULES, PatternError, Rule, Stage
from .catalogue import LEVELS, Level
from .operators import Mode


class PatternSelectionError(PatternError, ValueError):
    """A name that is no pattern, or a mandatory pattern switched off."""


@dataclass(frozen=True, slots=True)
class PatternSet:
    """Names of the patterns that are on, and whether the mandatory ones must be."""

    enabled: frozenset[str]
    runtime_asserts: bool = True

    def __contains__(self, name: str) -> bool:
        return name in self.enabled


def at_level(level: Level | str | int = "Default") -> PatternSet:
    """Patterns that a PopART level switches on.

    Parameters
    ----------
    level
        NoPatterns, Minimal, Default or All, by name or by number (0 to 3).
    """
    name = LEVELS[level] if isinstance(level, int) else level
    if name not in LEVELS:
        raise PatternSelectionError(f"unknown patterns level '{level}', expected one of {', '.join(LEVELS)}")
    return PatternSet(frozenset(row.name for row in catalogue.rows() if row.on_at(name)))


def added_rules(selection: PatternSet) -> list[Rule]:
    """The rules of these patterns that a program or plugin has added, by pattern."""
    rules = (rule for name in sorted(selection.enabled) for rule in RULES.get(name, ()))
    return [rule for rule in rules if not rule.rewrite.__module__.startswith(f"{__package__}.")]


def knows_own_alone() -> bool:
    """Whether all rules of this process belong to this package: no program or plugin has added one."""
    return not added_rules(PatternSet(frozenset(RULES)))


def from_names(names: Iterable[str]) -> PatternSet:
    """Exactly these patterns and nothing else."""
    chosen = frozenset(names)
    for name in sorted(chosen):
        require_known(name)
    return PatternSet(chosen)


def with_pattern(selection: PatternSet, name: str, on: bool) -> PatternSet:
    """`selection` with one pattern switched.

    Raises
    ------
    PatternSelectionError
        Unknown name, or a mandatory pattern switched off.
    """
    row = require_known(name)
    if row.mandatory and not on:
        raise PatternSelectionError(f"Pattern '{name}' is mandatory and cannot be disabled")
    return replace(selection, enabled=selection.enabled | {name} if on else selection.enabled - {name})


def require_known(name: str) -> catalogue.Row:
    """The catalogue row of `name`.

    Raises
    ------
    PatternSelectionError
        With the nearest known name as a hint.
    """
    row = catalogue.find(name)
    if row is None:
        if name == "Inplace":
            raise PatternSelectionError("Unknown pattern Inplace, did you mean InPlace?")
        error, hint = PatternSelectionError(f"Unknown pattern {name}"), _nearest(name)
        if hint:
            error.add_note(f"Did you mean '{hint}'?")
        raise error
    return row


def check_mandatory(selection: PatternSet) -> None:
    """Raise unless all mandatory patterns are on, or runtime asserts are off.

    Raises
    ------
    PatternSelectionError
        Names the first one that is missing.
    """
    if not selection.runtime_asserts:
        return
    for row in catalogue.rows():
        if row.mandatory and row.name not in selection:
            raise PatternSelectionError(f"Pattern '{row.name}' must be enabled")


def rules_of(selection: PatternSet, stage: Stage, mode: Mode, only: Sequence[str] | None = None) -> list[Rule]:
    """Rules of the enabled patterns for one stage and mode, in order of application."""
    names = [row.name for row in catalogue.rows() if row.name in selection or row.kind == "always"]
    if only is not None:
        names = [name for name in names if name in only]
    return [r for name in names for r in RULES.get(name, ()) if stage in r.stages and mode in r.modes]


def _nearest(name: str) -> str | None:
    close = difflib.get_close_matches(name, [row.name for row in catalogue.rows()], n=1)
    return close[0] if close else None
