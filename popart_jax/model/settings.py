"""Base of the plain settings objects: attributes are checked, unknown names are refused, assigned values are copied."""

from __future__ import annotations

import copy
import difflib
import sys
from functools import cache
from typing import Any, get_origin, get_type_hints

from .._calls import convert


class Settings:
    """An object whose annotated attributes are its fields.

    Fields hold values, not references: assignment copies, and containers are copied when read, as in the original
    bindings. Nested settings are returned without a copy, so ``options.a.b = 1`` works.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        hint = _fields(type(self)).get(name)
        if hint is None:
            raise AttributeError(unknown_name(self, name, _fields(type(self))))
        try:
            converted = convert(value, hint)
        except TypeError as err:
            raise TypeError(f"{type(self).__name__}.{name}: {err}") from None
        object.__setattr__(self, name, copy.deepcopy(converted))

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return copy.copy(value) if type(value) in (list, dict, set) and not name.startswith("__") else value

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


@cache
def _fields(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, vars(sys.modules[cls.__module__]))
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not type and name != "__hash__"}


def unknown_name(owner: Any, name: str, known: Any) -> str:
    """Text for an attribute that does not exist, with the nearest name that does."""
    lowered = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    hint = f" Did you mean '{lowered[near[0]]}'?" if near else ""
    return f"'{type(owner).__name__}' object has no attribute '{name}'.{hint}"
