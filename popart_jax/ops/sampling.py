"""Sampling at real coordinates: GridSample, AffineGrid, DeformConv, Col2Im."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from ..limits import limits
from .arrays import Array, merge_axes
from .convolution import add_bias, check_groups, check_kernel
from .operator import operator
from .registry import Static, lowers
from .windows import Window, taps, window

Place = Callable[[jax.Array, int], tuple[jax.Array, Any]]
"""Maps an index along an axis to a valid one, and a factor (0 or 1, or None for always 1)."""


def reflect(x: Array, low: float, high: float) -> jax.Array:
    """Fold coordinates into [low, high] by mirroring at the borders."""
    span = high - low
    if span <= 0:
        return jnp.full_like(x, low)
    folded = jnp.abs(x - low) % (2 * span)
    return low + jnp.minimum(folded, 2 * span - folded)


def _nearest_taps(fraction: jax.Array) -> list[tuple[int, jax.Array]]:
    return [(0, jnp.ones_like(fraction))]


def linear_taps(fraction: jax.Array) -> list[tuple[int, jax.Array]]:
    """Offsets and weights of linear interpolation."""
    return [(0, 1 - fraction), (1, fraction)]


def cubic_taps(f: jax.Array, a: float = -0.75) -> list[tuple[int, jax.Array]]:
    """Offsets and weights of Keys' cubic convolution."""

    def outer(d: jax.Array) -> jax.Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    def inner(d: jax.Array) -> jax.Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    return [(-1, outer(f + 1)), (0, inner(f)), (1, inner(1 - f)), (2, outer(2 - f))]


def interpolate_at(x: Array, coords: list[Array], kernel: Callable[..., Any], place: Place) -> jax.Array:
    """Values of x (N, C, sizes...) at coordinates, one array (N, P) per spatial axis; the result is (N, C, P)."""
    sizes = x.shape[2:]
    flat = merge_axes(x, 2)
    per_axis: list[list[tuple[Any, jax.Array]]] = []
    for axis, c in enumerate(coords):
        base = jnp.floor(jax.lax.stop_gradient(c))
        weighted = kernel(c - base)
        per_axis.append([(place(base.astype(jnp.int32) + o, axis), w) for o, w in weighted])
    total = jnp.zeros((), x.dtype)
    for corner in product(*per_axis):
        index, factor = jnp.zeros((), jnp.int32), jnp.ones((), x.dtype)
        for ((where, valid), weight), size in zip(corner, sizes, strict=True):
            index = index * size + where
            factor = factor * (weight if valid is None else jnp.where(valid, weight, 0))
        total = total + jnp.take_along_axis(flat, index[:, None], axis=2) * factor[:, None]
    return total


def zeros_outside(sizes: tuple[int, ...]) -> Place:
    """Indices outside the data count as zero."""
    return lambda i, axis: (jnp.clip(i, 0, sizes[axis] - 1), (i >= 0) & (i < sizes[axis]))


def _places(padding: str, sizes: tuple[int, ...], borders: list[tuple[float, float]]) -> Place:
    if padding == "zeros":
        return zeros_outside(sizes)
    if padding == "border":
        return lambda i, axis: (jnp.clip(i, 0, sizes[axis] - 1), None)
    if padding == "reflection":
        return lambda i, axis: (
            jnp.clip(reflect(i.astype(jnp.float32), *borders[axis]).astype(jnp.int32), 0, sizes[axis] - 1),
            None,
        )
    raise popart_exception(f"Unknown padding_mode {padding!r} of GridSample; expected zeros, border or reflection.")


_KERNELS = {"linear": linear_taps, "bilinear": linear_taps, "cubic": cubic_taps, "bicubic": cubic_taps}


operator("GridSample", ranks="X 3+ grid =X")


@lowers("GridSample", 16, 20, 22)
def grid_sample(
    x: Array, grid: Array, /, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> jax.Array:
    """Sample x (N, C, sizes...) at grid (N, outs..., D): normalised coordinates, last axis first."""
    sizes, outs = x.shape[2:], grid.shape[1:-1]
    if grid.shape[-1] != len(sizes) or grid.shape[0] != x.shape[0]:
        raise popart_exception(f"GridSample: a grid of shape {list(grid.shape)} does not fit data {list(x.shape)}")
    borders = [(0.0, n - 1.0) if align_corners else (-0.5, n - 0.5) for n in sizes]
    coords: list[Array] = []
    for axis, (size, border) in enumerate(zip(sizes, borders, strict=True)):
        c = merge_axes(grid[..., len(sizes) - 1 - axis], 1)
        c = (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2
        c = jnp.round(c) if mode == "nearest" else c
        outside = (c < border[0]) | (c > border[1])
        moved = jnp.clip(c, 0, size - 1) if padding_mode == "border" else reflect(c, *border)
        stays = padding_mode == "zeros" or (padding_mode == "border" and mode in ("cubic", "bicubic"))
        coords.append(c if stays else jnp.where(outside, moved, c))  # cubic: each tap is clipped, as in torch
    place = _places(padding_mode, sizes, borders)
    if mode == "nearest":
        coords = [jnp.trunc(c) for c in coords]
        y = interpolate_at(x, coords, _nearest_taps, place)
    elif mode in _KERNELS:
        y = interpolate_at(x, coords, _KERNELS[mode], place)
    else:
        raise popart_exception(f"Unknown mode {mode!r} of GridSample; expected nearest, linear or cubic.")
    return y.reshape(*x.shape[:2], *outs).astype(x.dtype)


operator("AffineGrid", ranks="theta 3 size 1")


@lowers("AffineGrid", 20)
def affine_grid(theta: Array, size: Static, /, *, align_corners: int = 0) -> jax.Array:
    """Normalised coordinates of an affine map, last axis first."""
    sizes = [int(n) for n in size[2:]]
    if min(sizes, default=1) < 1:
        raise popart_exception(f"AffineGrid: size {np.asarray(size).tolist()} is not greater than zero")
    limits.check_size([theta.shape[0], *sizes, len(sizes)], 8, "AffineGrid: a result")
    axes = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in sizes]
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)
    grid = jnp.asarray(points, theta.dtype) @ theta.swapaxes(1, 2)
    return grid.reshape(theta.shape[0], *sizes, len(sizes))


operator("DeformConv", ranks="X 3+ W =X offset =X mask =X B 1")


@lowers("DeformConv", 19, 22)
def deform_conv(
    x: Array, w: Array, offset: Array, b: Array | None = None, mask: Array | None = None, /, *,
    dilations: Sequence[int] = (), group: int = 1, kernel_shape: Sequence[int] = (), offset_group: int = 1,
    pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Convolution whose taps are moved by `offset` (N, offset_group * taps * D, outs...) and scaled by `mask`."""
    check_groups(x.shape[1], w.shape[1], w.shape[0], group)
    check_kernel(kernel_shape, w.shape[2:])
    win = window(x.shape[2:], w.shape[2:], strides, dilations, pads)
    rank, taps_, outs = len(win.kernel), prod(win.kernel), win.positions
    for name, given, each in (("offset", offset, rank), ("mask", mask, 1)):
        wanted = (x.shape[0], offset_group * each * taps_, *outs)
        if given is not None and given.shape != wanted:
            raise popart_exception(f"DeformConv: {name} of shape {list(given.shape)}; expected {list(wanted)}")
    moved = offset.reshape(x.shape[0] * offset_group, taps_, rank, prod(outs))
    coords = [merge_axes(moved[:, :, d] + _tap_positions(win, d), 1) for d in range(rank)]
    split = x.reshape(x.shape[0] * offset_group, x.shape[1] // offset_group, *x.shape[2:])
    sampled = interpolate_at(split, coords, linear_taps, zeros_outside(x.shape[2:]))
    sampled = sampled.reshape(x.shape[0], offset_group, split.shape[1], taps_, prod(outs))
    if mask is not None:
        sampled = sampled * mask.reshape(x.shape[0], offset_group, 1, taps_, prod(outs))
    columns = sampled.reshape(x.shape[0], group, x.shape[1] // group, taps_, prod(outs))
    kernels = w.reshape(group, -1, w.shape[1], taps_)
    y = jnp.einsum("ngckp,gmck->ngmp", columns, kernels).reshape(x.shape[0], w.shape[0], *outs)
    return add_bias(y.astype(x.dtype), b)


def _tap_positions(win: Window, axis: int) -> np.ndarray:
    """Unmoved coordinate along `axis` of every kernel element at every output, (taps, outputs)."""
    kernel = np.indices(win.kernel)[axis].reshape(-1, 1) * win.dilations[axis]
    out = np.indices(win.positions)[axis].reshape(1, -1) * win.strides[axis]
    return (kernel + out - win.pads[axis][0]).astype(np.float32)


@lowers("Col2Im", 18)
def col2im(
    x: Array, image_shape: Static, block_shape: Static, /, *, dilations: Sequence[int] = (), pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Overlapping blocks summed into an image: the transpose of taking windows."""
    sizes = tuple(int(n) for n in image_shape)
    win = window(sizes, [int(n) for n in block_shape], strides, dilations, pads)
    if x.ndim != 3 or x.shape[1] % prod(win.kernel) or x.shape[2] != prod(win.positions):
        raise popart_exception(
            f"Col2Im: {list(x.shape)} is not (N, channels * {prod(win.kernel)}, {prod(win.positions)}) as blocks say"
        )
    channels = x.shape[1] // prod(win.kernel)

    def blocks(image: jax.Array) -> jax.Array:
        padded = jnp.pad(image, ((0, 0), (0, 0), *win.pads))
        return jnp.stack([merge_axes(t, 2) for t in taps(padded, win)], axis=2)

    template = jax.ShapeDtypeStruct((x.shape[0], channels, *sizes), x.dtype)
    columns = jnp.asarray(x).reshape(x.shape[0], channels, prod(win.kernel), prod(win.positions))
    return cast("jax.Array", jax.linear_transpose(blocks, template)(columns)[0])
