"""Values of an optimizer: a number and whether it stays the same for the life of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import logs_errors, popart_exception


class OptimizerValue:
    """A hyperparameter: its value (kept in single precision, as the device has it) and its const flag."""

    __slots__ = ("_const", "_value")

    def __init__(self, val: Any = 0.0, isConst: bool = True) -> None:
        if isinstance(val, tuple):
            val, isConst = val
        with np.errstate(over="ignore"):  # too large for single precision: an infinity, which the optimizers refuse
            self._value = float(np.float32(val))
        self._const = bool(isConst)

    def val(self) -> float:
        """The value."""
        return self._value

    def isConst(self) -> bool:
        """Whether the value may not change."""
        return self._const

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OptimizerValue):
            return NotImplemented
        return (self._value, self._const) == (other._value, other._const)

    def __hash__(self) -> int:
        return hash((self._value, self._const))

    def __repr__(self) -> str:
        return f"OptimizerValue({self._value:g}, isConst={self._const})"


class OptimizerValueMap:
    """One hyperparameter for all weights: a default, and values for single weights."""

    __slots__ = ("_default", "_specific")

    def __init__(self, default: OptimizerValue, specific: Mapping[str, OptimizerValue] | None = None) -> None:
        self._default = default
        self._specific = dict(specific or {})

    def getDefault(self) -> OptimizerValue:
        """Value of weights without one of their own."""
        return self._default

    def get(self, weight: str) -> OptimizerValue:
        """Value for a weight."""
        return self._specific.get(weight, self._default)

    def hasSpecific(self, weight: str | None = None) -> bool:
        """Whether a weight (or any) has a value of its own."""
        return bool(self._specific) if weight is None else weight in self._specific

    @logs_errors
    def insert(self, weight: str, value: OptimizerValue) -> None:
        """Set the value of one weight.

        Raises
        ------
        popart_exception
            It already has one.
        """
        if weight in self._specific:
            raise popart_exception(f"Already a specific optimizer value for tensor '{weight}'; cannot insert another.")
        self._specific[weight] = value

    def specifics(self) -> Mapping[str, OptimizerValue]:
        """Values of single weights."""
        return dict(self._specific)

    def __iter__(self) -> Iterator[OptimizerValue]:
        yield self._default
        yield from self._specific.values()

    def fixed(self) -> dict[str, float | None]:
        """Constant values by weight ('' is the default), None for those that may change."""
        return {w: v.val() if v.isConst() else None for w, v in {"": self._default, **self._specific}.items()}

    def replaceable_by(self, other: OptimizerValueMap) -> str:
        """Why `other` may not take this one's place while a session runs; empty when it may."""
        if self._specific.keys() != other._specific.keys():
            return f"specific values for {sorted(self._specific)} can't become values for {sorted(other._specific)}"
        pairs = {"the default": (self._default, other._default)}
        pairs |= {f"tensor '{w}'": (v, other._specific[w]) for w, v in self._specific.items()}
        for where, (old, new) in pairs.items():
            if old.isConst() != new.isConst():
                return f"{where} is {'const' if old.isConst() else 'non-const'} and can't become the other"
            if old.isConst() and old.val() != new.val():
                return f"{where} is const with value {old.val():g} and can't become {new.val():g}"
        return ""


def parse(values: Mapping[Any, Any], allowed: Mapping[str, str], owner: str) -> dict[str, OptimizerValue]:
    """A user's dictionary as values by field name.

    Parameters
    ----------
    values : mapping
        ``{"defaultLearningRate": (0.1, False), ...}``.
    allowed : mapping of str to str
        Field name by dictionary key.
    owner : str
        Class name for messages.

    Raises
    ------
    popart_exception
        A key that is unknown or no str, or a value that is no (number, bool) tuple.
    """
    parsed = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise popart_exception(f"{owner}: optimizer value names must be strings, got {key!r}")
        if key not in allowed:
            known = ", ".join(allowed)
            raise popart_exception(f"Unrecognised optimizer value '{key}' for {owner}. Allowed values are: {known}")
        if not isinstance(value, tuple) or len(value) != 2:
            raise popart_exception(f"{owner}: value of '{key}' must be a tuple (value, isConst), got {value!r}")
        try:
            parsed[allowed[key]] = OptimizerValue(float(value[0]), bool(value[1]))
        except (TypeError, ValueError) as err:
            raise popart_exception(f"{owner}: value of '{key}' must be a tuple (number, bool), got {value!r}") from err
    return parsed
