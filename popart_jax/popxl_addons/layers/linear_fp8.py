"""Dense layer that multiplies in float8."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ..module import Module
from ..named_tensors import NamedTensors
from ..ops.fp8 import fp8_amax_scale, fp8_mse_scale
from ..utils import WeightsDict
from .initial import truncated_normal
from .linear import Linear

_FORWARD, _BACKWARD = popxl.float8_143, popxl.float8_152
_METRICS = ("amax", "mse", "manual_scale")


class LinearFP8(Module):
    """x @ weight + bias in float16, the product of float8 operands; weight (in, out), bias (out,).

    Activations and weights are rounded to float8_143, incoming gradients to float8_152.

    Parameters
    ----------
    scale_metric : {"amax", "mse", "manual_scale"}
        How the power of two is chosen that an operand is multiplied with before it is rounded.
    scale : int
        That power, for "manual_scale".

    Raises
    ------
    ValueError
        Another metric.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        scale_metric: str = "amax",
        scale: int = 0,
        replica_grouping: popxl.ReplicaGrouping | None = None,
    ) -> None:
        super().__init__()
        if scale_metric not in _METRICS:
            raise ValueError(f"scale_metric must be one of {_METRICS}, got {scale_metric!r}")
        self.out_features, self.bias = out_features, bias
        self.scale_metric, self.scale = scale_metric, scale
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """x (rows, in) float16 -> (rows, out)."""
        group = self.replica_grouping
        initial = partial(truncated_normal, (x.shape[-1], self.out_features))
        w = self.add_variable_input("weight", initial, popxl.float16, replica_grouping=group)
        (x8, x_scale), (w8, w_scale) = self._rounded(x, _FORWARD), self._rounded(w, _FORWARD)
        self.aux["x"], self.aux["x_scale"] = x8, x_scale
        self.aux["w"], self.aux["w_scale"] = w8, w_scale
        y = ops.matmul_pow2scaled(x8, w8, -(x_scale + w_scale))
        if self.bias:
            zeros = partial(np.zeros, (self.out_features,))
            y = y + self.add_variable_input("bias", zeros, popxl.float16, replica_grouping=group)
        return y

    def build_grad(self, dLdy: popxl.Tensor) -> popxl.Tensor:
        """Gradient of the input; those of weight and bias go to `var_grad`."""
        dy8, dy_scale = self._rounded(dLdy, _BACKWARD)
        weight = ops.transpose(self.aux["w"])
        inputs = ops.transpose(self.aux["x"])
        dx = ops.matmul_pow2scaled(dy8, weight, -(dy_scale + self.aux["w_scale"]))
        self.var_grad["weight"] = ops.matmul_pow2scaled(inputs, dy8, -(dy_scale + self.aux["x_scale"]))
        if self.bias:
            self.var_grad["bias"] = ops.sum(dLdy, tuple(range(dLdy.rank - 1)))
        return dx

    def _rounded(self, t: popxl.Tensor, dtype: popxl.dtype) -> tuple[popxl.Tensor, popxl.Tensor]:
        if self.scale_metric == "amax":
            scale = fp8_amax_scale(t, dtype)
        elif self.scale_metric == "mse":
            largest = fp8_amax_scale(t, dtype)  # the estimate may give up the largest values, which the cast makes NaN
            scale = -ops.maximum(-fp8_mse_scale(t, dtype), -largest)
        else:
            scale = popxl.constant(self.scale, popxl.int32)
        return ops.pow2scale_cast_to_fp8(t, scale, dtype), scale

    @staticmethod
    def torch_mapping(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32) -> WeightsDict:
        """Arrays of a `torch.nn.Linear` for the variables, which are float16."""
        return Linear.torch_mapping(variables, nn_layer, popxl.float16)
