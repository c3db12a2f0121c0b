"""Pooling with dilated inputs and padded outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..arrays import Array, lowest
from ..registry import lowers, resolve
from . import DOMAIN


def _spread(x: Any, dilations: Sequence[int], fill: Any) -> Any:
    """Elements along each spatial axis `dilation` apart, `fill` between them."""
    spacing = [(0, 0, 0), (0, 0, 0), *((0, 0, d - 1) for d in dilations)]
    return lax.pad(x, jnp.asarray(fill, x.dtype), spacing)


def _bordered(x: Any, pads: Sequence[int]) -> Any:
    n = len(pads) // 2
    return jnp.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)])


def _windows(
    kernel_shape: Any, strides: Any, pads: Any, dilations: Any, auto_pad: Any, ceil_mode: Any
) -> dict[str, Any]:
    return {"kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations,
            "auto_pad": auto_pad, "ceil_mode": ceil_mode}  # fmt: skip


def _pool(name: str, x: Any, attributes: dict[str, Any]) -> Any:
    row = resolve("", name, 11)
    assert row is not None
    return row.fn(x, **attributes)


@lowers("DilatedMaxPool", domain=DOMAIN)
def dilated_max_pool(
    x: Array, /, *, kernel_shape: Sequence[int], strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int], auto_pad: str, ceil_mode: int, in_dilations: Sequence[int], out_pads: Sequence[int],
) -> Array:  # fmt: skip
    """Maximum of each window; the gaps between spread elements are ignored."""
    attributes = _windows(kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    spread = _spread(jnp.asarray(x), in_dilations, lowest(x.dtype))
    return _bordered(_pool("MaxPool", spread, attributes), out_pads)


@lowers("DilatedAveragePool", domain=DOMAIN)
def dilated_average_pool(
    x: Array, /, *, kernel_shape: Sequence[int], strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int], auto_pad: str, ceil_mode: int, in_dilations: Sequence[int], out_pads: Sequence[int],
) -> Array:  # fmt: skip
    """Mean of each window; the gaps between spread elements are ignored."""
    attributes = _windows(kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    x = jnp.asarray(x)
    total, share = (
        _pool("AveragePool", _spread(values, in_dilations, 0), attributes) for values in (x, jnp.ones_like(x))
    )
    return _bordered(jnp.where(share > 0, total / jnp.where(share > 0, share, 1), 0), out_pads)
