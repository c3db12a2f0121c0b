"""Trees of tensors and of host arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .. import popxl
from ..popxl import ops
from ..popxl.context import debug_context_frame_offset
from .dot_tree import DictText, DotTree, TupleText

TensorMap = Mapping[popxl.Tensor, popxl.Tensor]


class NamedTensorData(DotTree[np.ndarray]):
    """Host arrays by name."""


class NamedTensors(DotTree[popxl.Tensor]):
    """Tensors by name."""

    @property
    def tensors(self) -> tuple[popxl.Tensor, ...]:
        """All tensors, sorted by their own names (not by key)."""
        return TupleText(sorted(self.values_flat(), key=lambda t: t.name))

    @property
    def named_tensors(self) -> dict[str, popxl.Tensor]:
        """Tensors by dotted key."""
        return DictText(self.to_dict())

    def remap(self, mapping: TensorMap) -> NamedTensors:
        """The same tree with each tensor replaced by `mapping[tensor]`.

        Raises
        ------
        KeyError
            A tensor is not in the mapping.
        """
        return self.map(lambda t: mapping[t])


@debug_context_frame_offset(1)
def print_named_tensors(named_tensors: NamedTensors) -> NamedTensors:
    """Print each tensor when the program runs; use the returned tree afterwards."""
    printed = {name: ops.print_tensor(t, title=name) for name, t in named_tensors.to_dict().items()}
    return NamedTensors.from_dict(printed)
