"""Hyperparameter values of an optimizer, each with a flag that says whether it is constant during a session."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import numpy as np

from .._calls import convert, no_overload
from ..errors import logs_errors, noted, popart_exception


class OptimizerValue:
    """A hyperparameter: its value (kept in single precision, as the device has it) and its const flag."""

    __slots__ = ("_const", "_value")

    def __init__(self, val: Any = 0.0, isConst: bool = True) -> None:
        if isinstance(val, tuple):
            val, isConst = cast("tuple[Any, bool]", val)
        try:
            val = convert(val, float)
        except TypeError:
            given = "(self, val: float, isConst: bool = True)", "(self, pair: tuple[float, bool])"
            raise TypeError(no_overload("__init__", given, [val, isConst], {})) from None
        with np.errstate(over="ignore"):  # too large for single precision: an infinity, which the optimizers refuse
            self._value = float(np.float32(val))
        self._const = bool(isConst)

    def val(self) -> float:
        """The value."""
        return self._value

    def isConst(self) -> bool:
        """Whether the value may not change."""
        return self._const

    def replaceable_by(self, other: OptimizerValue) -> str:
        """Why `other` may not take this one's place while a session runs, in PopART's words; empty when it may."""
        if self._const != other._const:
            return "Can not replace a constant value with a non constant value."
        if self._const and self._value != other._value:
            return "Values are constant but do not match."
        return ""

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

    def specific(self) -> Collection[str]:
        """Names of the weights with a value of their own."""
        return self._specific.keys()

    @logs_errors
    def insert(self, weight: str, value: OptimizerValue) -> None:
        """Set the value of one weight.

        Raises
        ------
        popart_exception
            It already has one.
        """
        if weight in self._specific:
            raise popart_exception(
                f"Attempt to insert specific value for optimization Tensor {weight}failed as there is already a "
                f"specific value for {weight} present. Bailing, in case this is an error."
            )
        self._specific[weight] = value

    def __iter__(self) -> Iterator[OptimizerValue]:
        yield self._default
        yield from self._specific.values()

    def fixed(self) -> dict[str, float | None]:
        """Constant values by weight ('' is the default), None for those that may change."""
        return {w: v.val() if v.isConst() else None for w, v in {"": self._default, **self._specific}.items()}

    def replaceable_by(self, other: OptimizerValueMap) -> str:
        """Why `other` may not take this one's place while a session runs, in PopART's words; empty when it may."""
        reason = self._default.replaceable_by(other._default)
        if reason:
            return f"Default value is not a valid replacement. {reason}"
        if len(self._specific) != len(other._specific):
            return "Replacement OptimizerValueMap has a different number of specific tensors."
        for weight, value in sorted(self._specific.items()):
            if weight not in other._specific:
                return f"Could not find tensor {weight} in replacement OptimizerValueMap."
            reason = value.replaceable_by(other._specific[weight])
            if reason:
                return f"OptimizerValue for tensor {weight} is not a valid replacement.{reason}"
        return ""


def check_keys(values: Mapping[Any, Any], allowed: Collection[str], words: str) -> None:
    """Refuse a user's dictionary that has other keys; `words` holds the key as ``{key}``.

    Raises popart_exception for a key that is no str, a value that is no tuple, or an unknown key, looked for in this
    order.
    """
    nameless = [key for key in values if not isinstance(key, str)]
    if nameless:
        error = popart_exception("A key in the optimizer map input must be a py::str (in getOptimizerValueDictionary)")
        raise noted(error, f"got {nameless[0]!r}")
    bare = [key for key, value in values.items() if not isinstance(value, tuple)]
    if bare:
        error = popart_exception("A value in the optimizer map must be a py::tuple (in getOptimizerValueDictionary)")
        raise noted(error, f"'{bare[0]}' has {values[bare[0]]!r}, expected (value, isConst)")
    unknown = next((key for key in values if key not in allowed), None)
    if unknown is not None:
        raise popart_exception(f"{words.format(key=unknown)} ( {' '.join(sorted(allowed))} )")


def parse(values: Mapping[Any, Any], allowed: Mapping[str, str], owner: str) -> dict[str, OptimizerValue]:
    """Convert a user's dictionary, ``{"defaultLearningRate": (0.1, False), ...}``, to values by field name.

    `check_keys` has checked its keys; `allowed` has the field name of each. Raises popart_exception, with the class
    name `owner`, for a value that is no (number, bool) tuple.
    """
    parsed: dict[str, OptimizerValue] = {}
    for key, value in values.items():
        try:
            number, constant = value
            parsed[allowed[key]] = OptimizerValue(float(number), bool(constant))
        except (TypeError, ValueError) as err:
            raise popart_exception(f"{owner}: value of '{key}' must be a tuple (number, bool), got {value!r}") from err
    return parsed
