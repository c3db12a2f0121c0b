"""The base of PopART's enums."""

from __future__ import annotations

import enum

from ._calls import no_overload


class PopartEnum(enum.Enum):
    """Base of the public enums."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        """Only numbers stand for members; an unknown one is a ValueError, as for any enum."""
        if not hasattr(value, "__index__"):
            raise TypeError(no_overload("__init__", ["(self, value: int)"], [value], {}))

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
