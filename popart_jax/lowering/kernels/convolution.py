"""Convolutions with channels last, in the form that is fast on the backend.

XLA:CPU has fast kernels for plain convolutions of two dimensions only. On 2 cores, a training step of 8 x 28 x 28 x 128
in 32 groups takes 2,600 ms as XLA's grouped convolution, and 13 ms as convolutions of 16 channels with the groups on a
block diagonal. One of 16^3 x 16 takes 30 ms in three dimensions, and 4 ms with the window's depth moved into the
channels. Other backends have kernels for all of them. cuDNN takes weights as (M, ..., C): in that order they come out
of the stage that prepares weights, where XLA would turn them at each run.
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
from jax import lax

from ...ops import varying
from ...ops.arrays import merge_axes, split_axis
from ...ops.kernels import IPU, platform
from .canonical_convolution import Layout, Pads, canonical_convolution, layout

_ENOUGH_CHANNELS = 16  # more input channels do not make a convolution faster per channel
_MANY_PIECES = 16  # most convolutions for one node, since each is compiled on its own
_MANY_GROUPS = 8  # from which one product with the groups as its batch is faster than a product for each


def convolution(
    x: jax.Array, w: jax.Array, group: int, strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...]
) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., C/group, M), of one to three spatial dimensions."""
    if platform() != "cpu":
        w, names = (w, layout(x.ndim)) if platform() == IPU else _filters_first(w)
        return lax.conv_general_dilated(x, w, strides, pads, None, dilations, names, feature_group_count=group)
    if group > 1:
        return _grouped(x, w, group, strides, pads, dilations)
    if len(strides) == 3:
        return _volume(x, w, strides, pads, dilations)
    return canonical_convolution(x, w, strides, pads, dilations)


def _filters_first(w: jax.Array) -> tuple[jax.Array, Layout]:
    """Weights (..., C/group, M) as (M, ..., C/group), and the dimensions of a convolution by them."""
    data, weights, _ = layout(w.ndim)
    return jnp.moveaxis(w, -1, 0), (data, f"O{weights[:-2]}I", data)


def _grouped(
    x: jax.Array, w: jax.Array, group: int, strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...]
) -> jax.Array:
    """A few plain convolutions, each over enough neighbouring groups to have enough channels.

    Weights between groups are zero, which infinities and NaN would turn into NaN for the neighbours; such data are
    computed group by group.
    """
    if group >= _MANY_GROUPS and w.size == w.shape[-2] * w.shape[-1] and not any(map(any, pads)):
        return _batched_product(x, w, group, strides)
    together = merged(group, w.shape[-2])
    if together == 1:
        return in_pieces(x, w, group, together, strides, pads, dilations)

    def exact(x: jax.Array, w: jax.Array) -> jax.Array:
        data = jnp.moveaxis(split_axis(x, -1, group), -2, 0)
        kernels = jnp.moveaxis(split_axis(w, -1, group), -2, 0)

        def of_group(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
            return convolution(pair[0], pair[1], 1, strides, pads, dilations)

        found = cast("jax.Array", lax.map(of_group, (data, kernels)))
        return merge_axes(jnp.moveaxis(found, 0, -2), -2)

    def fast(x: jax.Array, w: jax.Array) -> jax.Array:
        return in_pieces(x, w, group, together, strides, pads, dilations)

    return varying.cond(jnp.isfinite(x).all(), fast, exact, x, w)


def _batched_product(x: jax.Array, w: jax.Array, group: int, strides: tuple[int, ...]) -> jax.Array:
    """A convolution of single places.

    In us, as plain convolutions and as this product (Intel Xeon, two cores, 70 layers of random shapes): 14 x 14 x 256
    to 128 in 32 groups 153 and 50, 7 x 7 x 96 to 512 in 8 36 and 23, 4 x 4 x 192 to 1,024 in 16 110 and 21, 40 x 40 x
    64 to 128 in 16 287 and 255, 14 x 14 x 64 to 256 in 32 42 and 34.
    """
    seen = x[(slice(None), *(slice(None, None, s) for s in strides))]
    data = jnp.moveaxis(split_axis(merge_axes(seen, 0, -1), -1, group), -2, 0)
    kernels = jnp.moveaxis(split_axis(w.reshape(w.shape[-2:]), -1, group), -2, 0)
    found = merge_axes(jnp.moveaxis(data @ kernels, 0, -2), -2)
    return found.reshape(*seen.shape[:-1], w.shape[-1])


def in_pieces(
    x: jax.Array, w: jax.Array, group: int, together: int, strides: tuple[int, ...], pads: Pads,
    dilations: tuple[int, ...],
) -> jax.Array:  # fmt: skip
    """One convolution for each `together` groups, with their weights on a block diagonal."""
    pieces = group // together
    parts = zip(jnp.split(x, pieces, -1), jnp.split(w, pieces, -1), strict=True)
    found = [convolution(a, block_diagonal(b, together), 1, strides, pads, dilations) for a, b in parts]
    return jnp.concatenate(found, -1)


def merged(group: int, channels: int) -> int:
    """Number of groups that one convolution computes, for this many input channels per group; a divisor of `group`."""
    fits = (m for m in range(1, group) if group % m == 0)
    return next((m for m in fits if m * channels >= _ENOUGH_CHANNELS and group // m <= _MANY_PIECES), group)


def block_diagonal(w: jax.Array, group: int) -> jax.Array:
    """Weights (..., C/group, M) of a grouped convolution as weights (..., C, M) of a plain one, zero between groups."""
    *window, channels, outputs = w.shape
    blocks = w.reshape(*window, 1, channels, group, outputs // group)
    own = jnp.eye(group, dtype=bool)[:, None, :, None]
    return jnp.where(own, blocks, jnp.zeros((), w.dtype)).reshape(*window, group * channels, outputs)


def _volume(x: jax.Array, w: jax.Array, strides: tuple[int, ...], pads: Pads, dilations: tuple[int, ...]) -> jax.Array:
    """A 3-D convolution as a 2-D one, whose channels are those of all slices of the volume in the window's depth."""
    depth, step, apart = w.shape[0], strides[0], dilations[0]
    low, high = pads[0]
    padded = lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), (low, high, 0), *((0, 0, 0),) * 3))
    count = (padded.shape[1] - (depth - 1) * apart - 1) // step + 1
    last = (count - 1) * step + 1
    seen = jnp.concatenate([padded[:, i * apart : i * apart + last : step] for i in range(depth)], -1)
    images = seen.reshape(-1, *seen.shape[2:])
    kernel = jnp.moveaxis(w, 0, 2).reshape(*w.shape[1:3], -1, w.shape[-1])
    y = convolution(images, kernel, 1, strides[1:], pads[1:], dilations[1:])
    return y.reshape(x.shape[0], count, *y.shape[1:])
