"""Group normalisation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ..module import Module
from ..named_tensors import NamedTensors
from ..utils import WeightsDict
from .layer_norm import weight_and_bias


class GroupNorm(Module):
    """Normalisation over groups of channels (axis 1); weight ones, bias zeros."""

    def __init__(
        self,
        num_groups: int,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        eps: float = 1e-5,
        cache: bool = False,
    ) -> None:
        super().__init__(cache=cache)
        self.num_groups = num_groups
        self.replica_grouping = replica_grouping
        self.eps = eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """x (batch, channels, ...)."""
        channels, group = x.shape[1], self.replica_grouping
        w = self.add_variable_input("weight", partial(np.ones, channels), x.dtype, replica_grouping=group)
        b = self.add_variable_input("bias", partial(np.zeros, channels), x.dtype, replica_grouping=group)
        return ops.group_norm(x, w, b, self.num_groups, self.eps)

    @staticmethod
    def torch_mapping(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32) -> WeightsDict:
        """Arrays of a `torch.nn.GroupNorm` for the variables."""
        return weight_and_bias(variables, nn_layer, dtype)
