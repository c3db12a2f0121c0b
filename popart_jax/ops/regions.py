"""Regions of images: RoiAlign, MaxRoiPool, CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import popart_exception, poplibs_exception, until_compiled
from ..limits import limits
from .arrays import Array, lowest, normal_axes, wrap_indices
from .moving import moves_texts
from .operator import as_onnx, operator
from .registry import Static, lowers


def _concrete(x: Any) -> np.ndarray | None:
    try:
        return np.asarray(x)
    except jax.errors.TracerArrayConversionError:
        return None


class _Samples:
    """Sampling points of all regions along one axis: (R, bins, samples), with how many count per region."""

    def __init__(self, begin: Array, length: Array, bins: int, ratio: int, size: int, clamp: bool) -> None:
        step = length / bins
        if ratio > 0:
            most, self.counts = ratio, jnp.full(begin.shape, float(ratio), begin.dtype)
        else:
            known = _concrete(jnp.ceil(step))
            if known is None:
                raise popart_exception(
                    "RoiAlign with sampling_ratio 0 takes as many samples as the regions are large, which is known "
                    "only at run time: call it outside jit, or set sampling_ratio."
                )
            most = max(int(known.max(initial=1)), 1)
            self.counts = lax.stop_gradient(jnp.ceil(step))
        limits.check_size(
            (*begin.shape, bins, most, size), begin.dtype.itemsize, "RoiAlign: the weights of all samples"
        )
        k = jnp.arange(most, dtype=begin.dtype)
        share = (k + 0.5) / jnp.maximum(self.counts, 1)[:, None, None]
        points = begin[:, None, None] + (jnp.arange(bins, dtype=begin.dtype)[:, None] + share) * step[:, None, None]
        self.used = k < self.counts[:, None, None]
        self.inside = self.used & (points <= size) & (True if clamp else points >= -1)
        points = jnp.clip(points, 0, size - 1)
        self.low = jnp.minimum(jnp.floor(points), size - 1).astype(jnp.int32)
        self.high = jnp.minimum(self.low + 1, size - 1)
        self.fraction = points - lax.stop_gradient(jnp.floor(points))
        self.size = size

    def matrix(self) -> jax.Array:
        """Mean bilinear weights of every bin, (R, bins, size)."""
        places = jnp.arange(self.size)
        low = jnp.where(places == self.low[..., None], (1 - self.fraction)[..., None], 0)
        high = jnp.where(places == self.high[..., None], self.fraction[..., None], 0)
        total = jnp.where(self.inside[..., None], low + high, 0).sum(2)
        return total / jnp.maximum(self.counts, 1)[:, None, None]


def _region_axis(
    rois: Array, column: int, scale: float, bins: int, ratio: int, size: int, half_pixel: bool, clamp: bool
) -> _Samples:
    offset = 0.5 if half_pixel else 0.0
    begin, end = (rois[:, c] * scale - offset for c in (column, column + 2))
    length = end - begin if half_pixel else jnp.maximum(end - begin, 1)
    return _Samples(begin, length, bins, ratio, size, clamp)


def _roi_align(
    x: Array, rois: Array, batch: Array, mode: str, height: int, width: int, ratio: int, scale: float,
    half_pixel: bool, clamp: bool,
) -> jax.Array:  # fmt: skip
    precise = jnp.promote_types(x.dtype, jnp.float32)
    rois, data = rois.astype(precise), jnp.asarray(x).astype(precise)
    if ratio < 0:
        raise popart_exception(f"RoiAlign: sampling_ratio {ratio}; expected 0 or more")
    limits.check_size((rois.shape[0], x.shape[1], height, width), data.dtype.itemsize, "RoiAlign: a result")
    ys = _region_axis(rois, 1, scale, height, ratio, x.shape[2], half_pixel, clamp)
    xs = _region_axis(rois, 0, scale, width, ratio, x.shape[3], half_pixel, clamp)
    if mode == "avg":
        y = jnp.einsum("rpy,rcyx,rqx->rcpq", ys.matrix(), data[batch], xs.matrix())
        return y.astype(x.dtype)
    if mode != "max":
        raise popart_exception(f"Unknown mode {mode!r} of RoiAlign; expected avg or max.")
    best = None
    inside = ys.inside[:, :, :, None, None] & xs.inside[:, None, None]
    for y_at, y_weight in ((ys.low, 1 - ys.fraction), (ys.high, ys.fraction)):
        for x_at, x_weight in ((xs.low, 1 - xs.fraction), (xs.high, xs.fraction)):
            corner = data[batch[:, None, None, None, None], :, y_at[:, :, :, None, None], x_at[:, None, None]]
            weight = jnp.where(inside, y_weight[:, :, :, None, None] * x_weight[:, None, None], 0)
            value = corner * weight[..., None]
            best = value if best is None else jnp.maximum(best, value)
    used = (ys.used[:, :, :, None, None] & xs.used[:, None, None])[..., None]
    pooled = jnp.where(used, best, -jnp.inf).max((2, 4))
    return jnp.where(jnp.isneginf(pooled), 0, pooled).transpose(0, 3, 1, 2).astype(x.dtype)


operator("RoiAlign", gradients="g x0 x1 x2", ranks="X 4 rois 2 batch_indices 1", popxl=as_onnx(10, runs=10))


@lowers("RoiAlign", 10)
def roi_align_10(
    x: Array, rois: Array, batch_indices: Array, /, *, mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> jax.Array:  # fmt: skip
    sizes, batch = (output_height, output_width), wrap_indices(jnp.asarray(batch_indices), x.shape[0])
    return _roi_align(x, rois, batch, mode, *sizes, sampling_ratio, spatial_scale, half_pixel=False, clamp=False)


@lowers("RoiAlign", 10, popart=True)
def popart_roi_align(
    x: Array, rois: Array, batch_indices: Array, /, *, output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> jax.Array:  # fmt: skip
    """Always averages, clamps coordinates below the data, and gives the regions no gradient."""
    for name, value, rank in (("data", x, 4), ("rois", rois, 2), ("batch_index", batch_indices, 1)):
        if value.ndim != rank:
            raise popart_exception(f"The size of input {name} must be {rank}")
    if sampling_ratio < 1:
        means = jnp.zeros((len(rois), x.shape[1], output_height, output_width), x.dtype)
        raise until_compiled(poplibs_exception("samplingRatio must be greater than 0"), means)
    sizes, batch = (output_height, output_width), jnp.asarray(batch_indices)
    fixed = lax.stop_gradient(rois)
    return _roi_align(x, fixed, batch, "avg", *sizes, sampling_ratio, spatial_scale, half_pixel=False, clamp=True)


@lowers("RoiAlign", 16, popart=True)
@lowers("RoiAlign", 16, 22)
def roi_align(
    x: Array, rois: Array, batch_indices: Array, /, *, coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg", output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> jax.Array:  # fmt: skip
    half = coordinate_transformation_mode == "half_pixel"
    batch = wrap_indices(jnp.asarray(batch_indices), x.shape[0])
    if rois.shape != (*batch.shape, 4) or min(output_height, output_width) < 1:
        sizes = f"output {output_height} x {output_width}"
        raise popart_exception(
            f"RoiAlign: rois {list(rois.shape)}, {batch.shape[0]} batch indices and {sizes} do not fit"
        )
    return _roi_align(
        x, rois, batch, mode, output_height, output_width, sampling_ratio, spatial_scale, half, clamp=False
    )


def _bins(begin: Array, end: Array, bins: int, size: int) -> jax.Array:
    """Membership of every element in every bin, (R, bins, size)."""
    begin, end = (lax.round(v, lax.RoundingMethod.AWAY_FROM_ZERO) for v in (begin, end))
    step = jnp.maximum(end - begin + 1, 1) / bins
    k = jnp.arange(bins)
    low = jnp.clip(jnp.floor(k * step[:, None]) + begin[:, None], 0, size)
    high = jnp.clip(jnp.ceil((k + 1) * step[:, None]) + begin[:, None], 0, size)
    places = jnp.arange(size)
    return (places >= low[..., None]) & (places < high[..., None])


operator("MaxRoiPool", ranks="X 4 rois 2")


@lowers("MaxRoiPool", 1, 22)
def max_roi_pool(x: Array, rois: Array, /, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> jax.Array:
    """Maximum over the bins of each region (batch, x1, y1, x2, y2); empty bins give 0."""
    height, width = pooled_shape
    data = jnp.asarray(x)[rois[:, 0].astype(jnp.int32)]
    scaled = lax.stop_gradient(rois[:, 1:]) * spatial_scale
    rows = _bins(scaled[:, 1], scaled[:, 3], height, x.shape[2])
    columns = _bins(scaled[:, 0], scaled[:, 2], width, x.shape[3])
    low = lowest(x.dtype)
    y = jnp.where(rows[:, None, :, :, None], data[:, :, None], low).max(3)
    y = jnp.where(columns[:, None, None], y[:, :, :, None], low).max(4)
    return jnp.where(y == low, 0, y)


operator("CenterCropPad", ranks="shape 0-1")


@lowers("CenterCropPad", 18)
@moves_texts
def center_crop_pad(x: Array, shape: Static, /, *, axes: Sequence[int] = ()) -> Array:
    """Cut or pad with zeros around the centre."""
    sizes = np.atleast_1d(shape).tolist()
    axes = normal_axes(axes, x.ndim) if axes else range(x.ndim)
    if len(axes) != len(sizes) or min(sizes, default=0) < 0:
        raise popart_exception(f"CenterCropPad: shape {sizes} must give a size for each of the axes {list(axes)}")
    widths = [(0, 0, 0)] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        extra = int(size) - x.shape[axis]
        low = -(-extra // 2) if extra < 0 else extra // 2
        widths[axis] = (low, extra - low, 0)
    return lax.pad(jnp.asarray(x), jnp.zeros((), x.dtype), widths)
