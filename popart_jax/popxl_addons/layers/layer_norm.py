"""Layer normalisation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ..module import Module
from ..named_tensors import NamedTensors
from ..utils import WeightsDict
from .initial import host_array


class LayerNorm(Module):
    """Normalisation over the last axis; weight ones, bias zeros."""

    def build(self, x: popxl.Tensor, eps: float = 1e-5) -> popxl.Tensor:
        """x (rows, features).

        Raises
        ------
        ValueError
            `x` has another rank than 2.
        """
        if x.rank != 2:
            raise ValueError("The input tensor must be of shape N x C. Please flatten all extra dimensions.")
        w = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype)
        b = self.add_variable_input("bias", partial(np.zeros, x.shape[-1]), x.dtype)
        return ops.layer_norm(x, w, b, eps)

    @staticmethod
    def torch_mapping(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32) -> WeightsDict:
        """Arrays of a `torch.nn.LayerNorm` for the variables; those of several axes are flattened."""
        weight, bias = (host_array(p, dtype).reshape(-1) for p in (nn_layer.weight, nn_layer.bias))
        return WeightsDict({variables.weight: weight, variables.bias: bias})


def weight_and_bias(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype) -> WeightsDict:
    """Arrays of a torch layer's weight and bias as they are."""
    return WeightsDict(
        {
            variables.weight: host_array(nn_layer.weight, dtype),
            variables.bias: host_array(nn_layer.bias, dtype),
        }
    )
