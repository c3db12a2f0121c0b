"""`popart.Patterns`: PopART's mutable interface to `patterns.PatternSet`."""

from __future__ import annotations

from typing import Any, overload

import patterns

from .._calls import checked
from ..enums import PatternsLevel
from ..errors import noted, popart_exception


def _switch(name: str) -> property:
    """A read-write bool property for one pattern."""

    def get(self: Patterns) -> bool:
        return name in self._selection

    def put(self: Patterns, on: bool) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"pattern '{name}': expected a bool, got {on!r}")
        self.enablePattern(name, on)

    return property(get, put, doc=f"Whether pattern {name} is on.")


class Patterns:
    """Which graph rewrites a session applies.

    ``Patterns()`` and ``Patterns(level)`` start from a level, ``Patterns([names])`` has exactly those names on.

    Raises
    ------
    popart_exception
        A name that is no pattern.
    """

    __slots__ = ("_selection",)

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, level: PatternsLevel) -> None: ...
    @overload
    def __init__(self, patterns: list[str]) -> None: ...
    @checked
    def __init__(self, level: Any = PatternsLevel.Default, patterns: Any = None) -> None:  # pyright: ignore[reportInconsistentOverload]
        self._selection = _at_level(level) if patterns is None else _from_names(patterns)

    PreUniRepl = _switch("PreUniRepl")
    PostNRepl = _switch("PostNRepl")
    SoftMaxGradDirect = _switch("SoftmaxGradDirect")
    NlllWithSoftMaxGradDirect = _switch("NlllWithSoftmaxGradDirect")
    OpToIdentity = _switch("OpToIdentity")
    SubtractArg1GradOp = _switch("SubtractArg1GradOp")
    MulArgGradOp = _switch("MulArgGradOp")
    MatMulOp = _switch("MatMulOp")
    MatMulLhsGradOp = _switch("MatMulLhsGradOp")
    MatMulRhsGradOp = _switch("MatMulRhsGradOp")
    InPlace = _switch("InPlace")

    @property
    def selection(self) -> patterns.PatternSet:
        """The immutable value a session keeps."""
        return self._selection

    @checked
    def isPatternEnabled(self, t: str, /) -> bool:
        """Whether the pattern is on.

        Raises
        ------
        popart_exception
            Unknown name.
        """
        guarded(patterns.require_known, t)
        return t in self._selection

    @checked
    def enablePattern(self, t: str, v: bool, /) -> Patterns:
        """Switch one pattern; returns this object, so that calls chain.

        Raises
        ------
        popart_exception
            Unknown name, or a mandatory pattern switched off.
        """
        self._selection = guarded(patterns.with_pattern, self._selection, t, v)
        return self

    @checked
    def enableRuntimeAsserts(self, b: bool, /) -> Patterns:
        """Whether a session insists on the mandatory patterns; returns this object."""
        self._selection = patterns.PatternSet(self._selection.enabled, runtime_asserts=b)
        return self

    @staticmethod
    def getAllPreAliasPatternNames() -> list[str]:
        """Names of the patterns that run before views are made, in order of application."""
        return [row.name for row in patterns.catalogue.rows() if row.kind == "pre-alias"]

    @staticmethod
    def isMandatory(pattern: str) -> bool:
        """Whether the pattern can't be switched off; popart_exception for an unknown name."""
        return guarded(patterns.require_known, pattern).mandatory

    def __repr__(self) -> str:
        return " ".join(self.getAllPreAliasPatternNames())


def check_mandatory(selection: patterns.PatternSet) -> None:
    """Raise popart_exception unless every mandatory pattern is on or runtime asserts are off."""
    guarded(patterns.check_mandatory, selection)


def _at_level(level: PatternsLevel) -> patterns.PatternSet:
    patterns.load_plugins()
    return patterns.at_level(level.name)


def _from_names(names: list[str]) -> patterns.PatternSet:
    patterns.load_plugins()
    return guarded(patterns.from_names, names)


def guarded(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call into `patterns`, with its errors as PopART's."""
    try:
        return function(*arguments, **named)
    except patterns.PatternError as error:
        raise noted(popart_exception(str(error)), *getattr(error, "__notes__", ())) from error
