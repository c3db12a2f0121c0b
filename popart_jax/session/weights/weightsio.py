"""Arrays for reading and writing weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..._calls import checked
from ...errors import popart_exception


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
    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            if not array.flags.c_contiguous:
                raise popart_exception(
                    f"PyWeightsIO is unable to use the provided numpy output array for tensor '{name}' as it is not "
                    "c-contiguous. Please use a function like `numpy.ascontiguousarray()` to make contiguous before "
                    "passing to PyWeightsIO"
                )
        self.weights = dict(weights)
