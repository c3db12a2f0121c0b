"""Arrays for reading and writing weights."""

from __future__ import annotations

from typing import Any

from .._calls import checked
from .stepio import contiguous


class IWeightsIO:
    """Base of what `readWeights` and `writeWeights` take."""


class PyWeightsIO(IWeightsIO):
    """Arrays by weight name; they are referenced, not copied.

    Raises
    ------
    popart_exception
        An array is not C-contiguous.
    """

    @checked
    def __init__(self, weights: dict[str, Any]) -> None:
        self.weights = {name: contiguous(a, name) for name, a in weights.items()}
