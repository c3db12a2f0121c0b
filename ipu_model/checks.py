"""What sizes and types may be: refused where they are given, with the name, what was expected and what came."""

from __future__ import annotations

import math
import numbers

TYPES = ("half", "float")


def check_sizes(what: str, least: int = 1, /, **sizes: object) -> None:
    """Refuse sizes that are no whole numbers, or below `least`.

    Raises
    ------
    ValueError
        With the name of the first that is refused.
    """
    for name, size in sizes.items():
        whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)
        if not whole or size < least:  # pyright: ignore[reportOperatorIssue]
            raise ValueError(f"{what}: {name} is {size!r}, expected a whole number of at least {least}")


def check_choice(what: str, name: str, value: object, choices: tuple[str, ...] = TYPES) -> None:
    """Refuse what is none of `choices`.

    Raises
    ------
    ValueError
        With the choices.
    """
    if value not in choices:
        raise ValueError(f"{what}: {name} is {value!r}, expected one of {', '.join(choices)}")


def check_between(what: str, low: float, high: float, /, **values: float) -> None:
    """Refuse numbers outside ``low <= value <= high``, and what is no number.

    Raises
    ------
    ValueError
        With the name of the first that is refused.
    """
    for name, value in values.items():
        if not isinstance(value, numbers.Real) or math.isnan(value) or not low <= value <= high:
            raise ValueError(f"{what}: {name} is {value!r}, expected a number between {low:g} and {high:g}")
