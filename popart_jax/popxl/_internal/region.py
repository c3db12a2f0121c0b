"""Regions of tensors: boxes of elements."""

from __future__ import annotations

from collections.abc import Sequence


class Region:
    """A box of elements: lower (included) and upper (excluded) bounds."""

    def __init__(self, lower: Sequence[int], upper: Sequence[int], *, empty: bool = False) -> None:
        self._lower, self._upper, self._empty = tuple(lower), tuple(upper), empty

    @staticmethod
    def getFull(shape: Sequence[int], access: object = None) -> Region:
        """Every element of a tensor of this shape."""
        return Region((0,) * len(shape), shape)

    @staticmethod
    def getEmpty(rank: int) -> Region:
        """No element."""
        return Region((0,) * rank, (0,) * rank, empty=True)

    def isEmpty(self) -> bool:
        """Whether no element is in it."""
        return self._empty or any(low >= high for low, high in zip(self._lower, self._upper, strict=True))

    def __str__(self) -> str:
        return f"L:{list(self._lower)} U:{list(self._upper)}"

    __repr__ = __str__
