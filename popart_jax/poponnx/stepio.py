"""Step I/O that takes lists, numbers and iterators, and fills arrays of any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class PyStepIO:
    """Inputs (arrays, lists, numbers, or iterators that make one tensor after another) and arrays for the anchors."""

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> None:
        self.inputs, self.outputs = dict(inputs), dict(outputs)

    def for_types(self, types: Mapping[str, np.dtype]) -> dict[str, Any]:
        """Inputs as arrays of the types that the model wants; iterators stay what they are."""
        return {
            name: value if hasattr(value, "__next__") else np.ascontiguousarray(value, types.get(name))
            for name, value in self.inputs.items()
        }

    def store(self, results: Mapping[str, np.ndarray]) -> None:
        """Fill the outputs from the front, with their own types; ValueError where an array is too small."""
        for name, target in self.outputs.items():
            values = results[name].ravel()
            if target.size < values.size:
                raise ValueError(f"The array for '{name}' has {target.size} elements, the step returns {values.size}.")
            target.reshape(-1)[: values.size] = values
