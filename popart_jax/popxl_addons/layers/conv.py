"""Two-dimensional convolution."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ..module import Module
from ..named_tensors import NamedTensors
from ..utils import WeightsDict
from .initial import host_array, truncated_normal


class Conv2D(Module):
    """Convolution of (batch, channels, height, width); weight (out, in/groups, kh, kw), bias (1, out, 1, 1).

    Parameters
    ----------
    paddings : tuple of int or str
        (top, left, bottom, right), or one of "not_set", "same_upper", "same_lower", "valid".
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: tuple[int, ...] | int,
        strides: tuple[int, ...] = (1, 1),
        paddings: str | tuple[int, ...] = (0, 0, 0, 0),
        dilations: tuple[int, ...] = (1, 1),
        groups: int = 1,
        bias: bool = True,
        available_memory_proportions: list[float] | None = None,
        partials_types: list[str] | None = None,
        enable_conv_dithering: list[int] | None = None,
        replica_grouping: popxl.ReplicaGrouping | None = None,
    ) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.kernel_size = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        self.strides, self.dilations, self.groups, self.bias = strides, dilations, groups, bias
        named = isinstance(paddings, str)
        self.pad_type = paddings if named else "not_set"
        self.paddings = (0, 0, 0, 0) if named else paddings
        self.planning = {
            "available_memory_proportions": available_memory_proportions,
            "partials_types": partials_types,
            "enable_conv_dithering": enable_conv_dithering,
        }
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """x (batch, channels, height, width).

        Raises
        ------
        ValueError
            `x` has another rank than 4.
        """
        if x.rank != 4:
            raise ValueError(f"Conv2D takes a tensor of rank 4, got shape {x.shape}")
        shape = (self.out_channels, x.shape[1] // self.groups, *self.kernel_size)
        group = self.replica_grouping
        w = self.add_variable_input("weight", partial(truncated_normal, shape), x.dtype, replica_grouping=group)
        geometry: Any = (self.strides, self.paddings, self.dilations, self.groups, self.pad_type)
        y = ops.conv(x, w, *geometry, **self.planning)
        if self.bias:
            zeros = partial(np.zeros, (1, self.out_channels, 1, 1))
            y = y + self.add_variable_input("bias", zeros, x.dtype, replica_grouping=group)
        return y

    @staticmethod
    def torch_mapping(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32) -> WeightsDict:
        """Arrays of a `torch.nn.Conv2d` for the variables."""
        weights = WeightsDict({variables.weight: host_array(nn_layer.weight, dtype)})
        if nn_layer.bias is not None:
            weights[variables.bias] = host_array(nn_layer.bias, dtype).reshape(1, -1, 1, 1)
        return weights
