"""Dense layer that multiplies in float8."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ...popxl.ops.utils import cast_if_needed
from ..module import Module
from ..named_tensors import NamedTensors
from ..ops.fp8 import LARGEST_SCALE, fp8_amax_scale, fp8_mse_scale
from ..utils import WeightsDict
from .initial import truncated_normal
from .linear import Linear

_FORWARD, _BACKWARD = popxl.float8_143, popxl.float8_152
_METRICS = ("amax", "mse", "manual_scale")


class LinearFP8(Module):
    """x @ weight + bias, the product of float8 operands in float16; weight (in, out), bias (out,).

    Activations and weights are rounded to float8_143, incoming gradients to float8_152.

    Parameters
    ----------
    scale_metric : {"amax", "mse", "manual_scale"}
        How the power of two is chosen by which an operand is multiplied before rounding.
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
            raise ValueError(
                f"The scale_metric option {scale_metric} is not available. Please provide one of the following "
                "options: amax, mse or manual_scale."
            )
        self.out_features, self.bias = out_features, bias
        self.scale_metric, self.scale = scale_metric, scale
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """x (rows, in) float16 or float32 -> (rows, out) of the same type."""
        group = self.replica_grouping
        initial = partial(truncated_normal, (x.shape[-1], self.out_features))
        w = self.add_variable_input("weight", initial, x.dtype, replica_grouping=group)
        w_scale, x_scale = self._scale(w, _FORWARD), self._scale(x, _FORWARD)
        w8, x8 = ops.pow2scale_cast_to_fp8(w, w_scale, _FORWARD), ops.pow2scale_cast_to_fp8(x, x_scale, _FORWARD)
        self.aux["x"], self.aux["x_scale"] = x8, x_scale
        self.aux["w"], self.aux["w_scale"] = w8, w_scale
        y = cast_if_needed(ops.matmul_pow2scaled(x8, w8, -w_scale - x_scale), x.dtype)
        if self.bias:
            zeros = partial(np.zeros, (self.out_features,))
            y = y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=group)
        return y

    def build_grad(self, dLdy: popxl.Tensor) -> popxl.Tensor:
        """Gradient of the input; those of weight and bias go to `var_grad`. Both products are float16.

        Three powers of two are taken off the scale of `dLdy`, so that the scales of the products stay above -32.
        """
        dy_scale = ops.clip(self._scale(dLdy, _BACKWARD) - 3, -LARGEST_SCALE, LARGEST_SCALE)
        dy8 = ops.pow2scale_cast_to_fp8(dLdy, dy_scale, _BACKWARD)
        w_scale, x_scale = self.aux["w_scale"], self.aux["x_scale"]
        dx = ops.matmul_pow2scaled(dy8, ops.transpose(self.aux["w"]), -w_scale - dy_scale)
        dw = ops.matmul_pow2scaled(ops.transpose(dy8), self.aux["x"], -x_scale - dy_scale)
        self.var_grad["weight"] = ops.transpose(dw)
        if self.bias:
            self.var_grad["bias"] = ops.sum(dLdy, 0)
        return dx

    def _scale(self, t: popxl.Tensor, dtype: popxl.dtype) -> popxl.Tensor:
        """The exponent of the power of two by which a tensor is multiplied before rounding."""
        if self.scale_metric == "manual_scale":
            return popxl.constant(self.scale, popxl.int32)
        largest = fp8_amax_scale(t, dtype)
        if self.scale_metric == "amax":
            return largest
        # The estimate may let the largest values overflow, which the cast turns into NaN.
        return -ops.maximum(-fp8_mse_scale(t, dtype), -largest)

    @staticmethod
    def torch_mapping(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32) -> WeightsDict:
        """Arrays of a `torch.nn.Linear` for the variables."""
        return Linear.torch_mapping(variables, nn_layer, dtype)
