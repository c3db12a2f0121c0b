"""Checks of arguments; each error names the argument, the expected values and the value that was given."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Collection
from typing import Any

TYPES = ("half", "float")


def check_sizes(what: str, least: int = 1, /, **sizes: object) -> None:
    """Check that sizes are whole numbers of at least `least`; ValueError with the name of the first that is not."""
    for name, size in sizes.items():
        if type(size) is int and size >= least:
            continue
        whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)
        if not whole or size < least:  # pyright: ignore[reportOperatorIssue]
            raise ValueError(f"{what}: {name} is {size!r}, expected a whole number of at least {least}")


def check_choice(what: str, name: str, value: object, choices: tuple[str, ...] = TYPES) -> None:
    """Check that a value is one of `choices`; ValueError with the choices."""
    if value not in choices:
        raise ValueError(f"{what}: {name} is {value!r}, expected one of {', '.join(choices)}")


def check_flags(what: str, /, **flags: object) -> None:
    """Check that flags are true or false, or 1 or 0; ValueError with the name of the first that is not."""
    for name, flag in flags.items():
        if isinstance(flag, str) or flag not in (True, False):
            raise ValueError(f"{what}: {name} is {flag!r}, expected True or False")


def check_between(what: str, low: float, high: float, /, **values: float) -> None:
    """Check that values are numbers with ``low <= value <= high``.

    Raises ValueError with the name of the first that is not.
    """
    for name, value in values.items():
        if not isinstance(value, numbers.Real) or math.isnan(value) or not low <= value <= high:
            raise ValueError(f"{what}: {name} is {value!r}, expected a number between {low:g} and {high:g}")


def check_kind(name: str, value: object, kind: type, origin: str) -> None:
    """Check that an argument is of its kind; `origin` says where such things come from.

    Raises TypeError with the name of the argument.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {reprlib.repr(value)}, expected {origin}")


def check_finite(what: str, /, above: float | None = None, **values: Any) -> None:
    """Check that values are finite numbers above `above` (at least 0 by default).

    Raises ValueError with the name of the first that is not.
    """
    wanted = "of at least 0" if above is None else f"above {above:g}"
    for name, value in values.items():
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
        if not math.isfinite(number) or not (number >= 0 if above is None else number > above):
            raise ValueError(f"{what}: {name} is {value!r}, expected a finite number {wanted}")


def check_among(what: str, name: str, values: Collection[str], choices: Collection[str]) -> None:
    """Check that a collection holds only names of `choices`; a single string is refused too.

    Raises ValueError with the choices.
    """
    if isinstance(values, str) or not isinstance(values, Collection) or set(values) - set(choices):
        raise ValueError(f"{what}: {name} is {values!r}, expected a collection of some of {', '.join(choices)}")
