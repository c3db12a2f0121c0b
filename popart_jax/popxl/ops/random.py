"""Random tensors, determined by their seed."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from .._building.create import Out, create, result
from .._building.spec import checked_shape
from ..tensor import Tensor
from .utils import check_operands


def random_uniform(
    seed_tensor: Tensor,
    shape: tuple[int, ...],
    low: float = 0.0,
    high: float = 1.0,
    dtype: dtypes.dtype = dtypes.float32,
) -> Tensor:
    """Uniform numbers in [low, high)."""
    return _random("RandomUniform", seed_tensor, shape, dtype, "random_uniform_out", low=float(low), high=float(high))


def random_normal(
    seed_tensor: Tensor,
    shape: tuple[int, ...],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: dtypes.dtype = dtypes.float32,
) -> Tensor:
    """Normal numbers."""
    return _random("RandomNormal", seed_tensor, shape, dtype, "random_normal_out", mean=float(mean), scale=float(std))


def _random(op_type: str, seed: Tensor, shape: Any, dtype: dtypes.dtype, name: str, **attributes: float) -> Tensor:
    check_operands(seed_tensor=seed)
    dims = checked_shape(shape)
    out = Out(name, dims, dtype)
    return result(create(op_type, [seed], [out], {"shape": dims, "dtype": dtype, **attributes}))
