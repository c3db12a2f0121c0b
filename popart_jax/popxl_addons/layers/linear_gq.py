"""Dense layer whose weight is stored in groups of 4-bit numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ..module import Module
from ..named_tensors import NamedTensors
from ..ops.quantize import group_quantize_compress_numpy, group_quantize_decompress
from ..utils import WeightsDict
from .initial import host_array


class LinearGQ(Module):
    """x @ weight + bias, the weight unpacked when it is used.

    Variables: ``weight_compressed`` uint16 (rows, groups, group_size/4), ``weight_decompression_scale`` and
    ``weight_decompression_bias`` (rows, groups, 1), ``bias`` (out,), of the type of the input.

    Parameters
    ----------
    group_size : int
        Weights with a common scale; 0 means a whole row.
    dim : int
        Axis of the (in, out) weight along which groups lie.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        group_size: int = 0,
        dim: int = -1,
    ) -> None:
        super().__init__()
        self.out_features, self.bias, self.replica_grouping = out_features, bias, replica_grouping
        self.group_size, self.dim = group_size, dim

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """x (..., in) float16 -> (..., out)."""
        shape = (x.shape[-1], self.out_features)
        grouped, rows = (shape[1], shape[0]) if self.dim in (-1, 1) else shape
        size = self.group_size or grouped
        groups = (rows, grouped // size)

        def add(name: str, shape: tuple[int, ...], dtype: popxl.dtype) -> popxl.Tensor:
            zeros = partial(np.zeros, shape, dtype.as_numpy())
            return self.add_variable_input(name, zeros, dtype, replica_grouping=self.replica_grouping)

        packed = add("weight_compressed", (*groups, size // 4), popxl.uint16)
        scale = add("weight_decompression_scale", (*groups, 1), x.dtype)
        offset = add("weight_decompression_bias", (*groups, 1), x.dtype)
        y = x @ group_quantize_decompress(packed, scale, offset, self.dim)
        return y + add("bias", (self.out_features,), x.dtype) if self.bias else y

    @staticmethod
    def torch_mapping(
        variables: NamedTensors,
        nn_layer: Any,
        dtype: popxl.dtype = popxl.float32,
        group_size: int = 64,
        dim: int = -1,
    ) -> WeightsDict:
        """Arrays of a `torch.nn.Linear`, its weight compressed."""
        weight = host_array(nn_layer.weight, popxl.float32).T
        packed, scale, offset = group_quantize_compress_numpy(weight, group_size or weight.shape[dim], dim)
        weights = WeightsDict(
            {
                variables.weight_compressed: packed,
                variables.weight_decompression_scale: host_array(scale, dtype),
                variables.weight_decompression_bias: host_array(offset, dtype),
            }
        )
        if nn_layer.bias is not None:
            weights[variables.bias] = host_array(nn_layer.bias, dtype)
        return weights
