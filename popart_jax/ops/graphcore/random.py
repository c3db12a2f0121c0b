"""ShapedDropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import OpError
from ..arrays import Array, listed
from ..builder_methods import builder_method
from ..dropout import check_ratio, drop
from ..operator import RANDOM, as_graphcore, operator
from ..registry import Key, Training, lowers
from .losses import DOMAIN

operator("ShapedDropout", RANDOM, gradients="g seed", popxl=as_graphcore())
builder_method("ShapedDropout", "shapeddropout(args, shape:ints, ratio:float=0.5)")


@lowers("ShapedDropout", domain=DOMAIN)
def shaped_dropout(
    x: Array, /, *, shape: Sequence[int], ratio: float = 0.5, key: Key, training: Training = False
) -> Array:
    """Dropout whose mask has a shape of its own, broadcast to the data."""
    try:
        compatible = np.broadcast_shapes(x.shape, tuple(shape)) == x.shape
    except ValueError:
        compatible = False
    if not compatible:
        raise OpError(
            "ShapedDropout: incompatible input tensor and dropout shape. {opid} is configured with shape "
            f"{listed(shape)} which is not broadcastable to the input tensor with shape {listed(x.shape)}.",
            "ShapedDropout",
        )
    if check_ratio(ratio) == 0 or not training:
        return x
    return drop(x, key, ratio, tuple(shape))[0]
