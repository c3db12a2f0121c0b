"""Operators that ONNX 1.0 to 1.4 had on trial and never made standard; early converters wrote them.

ONNX Runtime still computes them, with the defaults given here, except for ConstantFill.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from .arrays import Array, onnx_dtype
from .create import constant_of_shape
from .normalization import check_image
from .operator import FOLDS, WIDE_RESULT, operator
from .registry import lowers

_BORDERS = 4


@lowers("Affine", 1)
def affine(x: Array, /, *, alpha: float = 1.0, beta: float = 0.0) -> Array:
    return x * np.asarray(alpha, x.dtype) + np.asarray(beta, x.dtype)


operator("ConstantFill", FOLDS | WIDE_RESULT, gradients=())


@lowers("ConstantFill", 1)
def constant_fill(
    x: Array | None = None, /, *, dtype: int = 1, extra_shape: Sequence[int] = (), input_as_shape: int = 0,
    shape: Sequence[int] = (), value: float = 0.0,
) -> Array:  # fmt: skip
    """A number in the shape of x, in the one that x holds, or in `shape`; PyTorch wrote it as the start of an LSTM."""
    if x is None:
        sizes = [*shape, *extra_shape]
    else:
        sizes = [*(np.asarray(x).reshape(-1) if input_as_shape else x.shape), *extra_shape]
    return constant_of_shape(np.asarray(sizes), value=np.asarray(value, onnx_dtype(dtype)))


@lowers("Scale", 1)
def scale_by(x: Array, /, *, scale: float = 1.0) -> Array:
    return x * np.asarray(scale, x.dtype)


@lowers("ScaledTanh", 1)
def scaled_tanh(x: Array, /, *, alpha: float, beta: float) -> Array:
    """alpha tanh(beta x)."""
    return jnp.tanh(x * np.asarray(beta, x.dtype)) * np.asarray(alpha, x.dtype)


@lowers("ParametricSoftplus", 1)
def parametric_softplus(x: Array, /, *, alpha: float, beta: float) -> Array:
    """alpha log(exp(beta x) + 1)."""
    return jax.nn.softplus(x * np.asarray(beta, x.dtype)) * np.asarray(alpha, x.dtype)


@lowers("ImageScaler", 1)
def image_scaler(x: Array, /, *, bias: Sequence[float], scale: float = 1.0) -> Array:
    """An image times a number, plus a number for each channel."""
    check_image("ImageScaler", x)
    if len(bias) != x.shape[1]:
        raise popart_exception(f"ImageScaler has {len(bias)} biases for {x.shape[1]} channels.")
    return x * np.asarray(scale, x.dtype) + np.asarray(bias, x.dtype)[:, None, None]


@lowers("Crop", 1)
def crop(x: Array, /, *, border: Sequence[int], scale: Sequence[int] = ()) -> Array:
    """An image without its border (left, top, right, bottom), or `scale` (height, width) from its left top on."""
    check_image("Crop", x)
    if len(border) != _BORDERS or len(scale) not in (0, 2):
        raise popart_exception(f"Crop takes 4 borders and 0 or 2 sizes, got {list(border)} and {list(scale)}.")
    left, top, right, bottom = border
    ends = [n - cut for n, cut in zip(x.shape[2:], (bottom, right), strict=True)]
    if len(scale):
        ends = [start + size for start, size in zip((top, left), scale, strict=True)]
    spans = list(zip((top, left), ends, x.shape[2:], strict=True))
    if any(not 0 <= start <= end <= n for start, end, n in spans):
        raise popart_exception(f"Crop: border {list(border)} and scale {list(scale)} leave shape {list(x.shape)}.")
    return x[:, :, top : ends[0], left : ends[1]]
