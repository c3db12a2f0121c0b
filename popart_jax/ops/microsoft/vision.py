"""Crops, slices and transposed convolutions with ONNX Runtime's own rules."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..arrays import Array
from ..convolution import conv_transpose
from ..registry import Static, lowers
from . import DOMAIN


def _places(low: jax.Array, high: jax.Array, count: int, size: int) -> jax.Array:
    """Positions of each crop's samples along one axis, (crops, count); corners are sampled exactly."""
    if count == 1:
        return (0.5 * (low + high) * (size - 1))[:, None]
    return low[:, None] * (size - 1) + jnp.arange(count) * ((high - low) * (size - 1) / (count - 1))[:, None]


@lowers("CropAndResize", domain=DOMAIN)
def crop_and_resize(
    x: Array, rois: Array, batch_indices: Array, crop_size: Static, /, *, extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> jax.Array:  # fmt: skip
    """Boxes (y1, x1, y2, x2) in units of the image, resampled to one size; what lies outside gets a constant."""
    if mode not in ("bilinear", "nearest"):
        raise popart_exception(f"CropAndResize mode {mode!r} is not supported; expected bilinear or nearest.")
    height, width = x.shape[2:]
    rows, columns = (int(n) for n in crop_size)
    y1, x1, y2, x2 = jnp.asarray(rois).T
    ys, xs = _places(y1, y2, rows, height), _places(x1, x2, columns, width)
    images = jnp.asarray(x)[jnp.asarray(batch_indices)]

    def one(image: jax.Array, ys: jax.Array, xs: jax.Array):
        inside = ((ys >= 0) & (ys <= height - 1))[:, None] & ((xs >= 0) & (xs <= width - 1))
        ys, xs = jnp.clip(ys, 0, height - 1), jnp.clip(xs, 0, width - 1)
        if mode == "nearest":
            picked = image[:, jnp.round(ys).astype(jnp.int32)][:, :, jnp.round(xs).astype(jnp.int32)]
        else:
            picked = _between(_between(image, ys, 1), xs, 2)
        return jnp.where(inside, picked, jnp.asarray(extrapolation_value, image.dtype))

    return jax.vmap(one)(images, ys, xs)


def _between(image: Array, places: jax.Array, axis: int) -> jax.Array:
    low, high = jnp.floor(places).astype(jnp.int32), jnp.ceil(places).astype(jnp.int32)
    part = (places - low).reshape([-1 if i == axis else 1 for i in range(3)]).astype(image.dtype)
    first, second = jnp.take(image, low, axis), jnp.take(image, high, axis)
    return first + (second - first) * part


@lowers("ConvTransposeWithDynamicPads", domain=DOMAIN)
def conv_transpose_with_dynamic_pads(
    x: Array, w: Array, pads: Static = None, b: Array | None = None, /, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] = (), group: int = 1, kernel_shape: Sequence[int] = (),
    output_padding: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    return conv_transpose(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, pads=() if pads is None else tuple(map(int, pads)), strides=strides,
    )  # fmt: skip


@lowers("UnfoldTensor", domain=DOMAIN)
def unfold_tensor(x: Array, /, *, size: int, dim: int = -1, step: int = 1) -> jax.Array:
    """All slices of one length along an axis, laid along a new last axis."""
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    picked = jnp.take(x, starts[:, None] + np.arange(size), axis=dim)
    return jnp.moveaxis(picked, dim % x.ndim + 1, -1)
