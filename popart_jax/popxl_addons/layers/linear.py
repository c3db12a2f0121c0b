"""Dense layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ..module import Module
from ..named_tensors import NamedTensors
from ..utils import WeightsDict
from .initial import host_array, truncated_normal


class Linear(Module):
    """x @ weight + bias; weight (in, out), bias (out,).

    Parameters
    ----------
    out_features : int
    bias : bool
    replica_grouping : ReplicaGrouping, optional
        Which replicas share the variables; default all.
    """

    def __init__(
        self, out_features: int, bias: bool = True, replica_grouping: popxl.ReplicaGrouping | None = None
    ) -> None:
        super().__init__()
        self.out_features = out_features
        self.bias = bias
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """x (..., in) -> (..., out)."""
        shape = (x.shape[-1], self.out_features)
        group = self.replica_grouping
        w = self.add_variable_input("weight", partial(truncated_normal, shape), x.dtype, replica_grouping=group)
        y = x @ w
        if self.bias:
            zeros = partial(np.zeros, (self.out_features,))
            y = y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=group)
        return y

    @staticmethod
    def torch_mapping(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32) -> WeightsDict:
        """Arrays of a `torch.nn.Linear` for the variables; the weight is transposed."""
        weights = WeightsDict({variables.weight: host_array(nn_layer.weight, dtype).T.copy()})
        if nn_layer.bias is not None:
            weights[variables.bias] = host_array(nn_layer.bias, dtype)
        return weights
