"""Resize and Upsample: interpolation is separable, one index list or one small matrix per axis, known while tracing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import IN_JAX, OpError, popart_exception, until_compiled
from ..limits import limits
from .arrays import Array
from .gradients import gradient_of, refuse_gradient
from .kernels import Computation
from .operator import PER_SAMPLE, ROUNDS, as_graphcore, operator
from .registry import Static, Training, lowers
from .symbols import as_size, is_symbol

CUBIC = -0.75
"""Coefficient of the cubic kernel where no attribute gives another: ONNX's default."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The attributes that determine the positions and weights of samples."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = CUBIC
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0
    single: bool = False
    """Coordinates in float32, as PopART computes them; ONNX's are in float64."""

    def __post_init__(self) -> None:
        if self.coordinates not in (*_COORDINATES, *_ONNX_COORDINATES):
            raise popart_exception(f"Unrecognised resize coordinate transformation mode {self.coordinates}")


@dataclass(frozen=True, slots=True)
class Axis:
    """One resized axis: sizes, scale, and its part of the region of interest."""

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float]


def positions(rule: Rule, at: Axis) -> np.ndarray:
    """Source coordinate of every output element.  Source: ONNX Resize-19, coordinate_transformation_mode."""
    number = np.float32 if rule.single else np.float64
    i, scale, size = np.arange(at.out, dtype=number), number(at.scale), number(at.size)
    return _coordinates(rule, at, i, scale, size).astype(np.float64)


def _coordinates(rule: Rule, at: Axis, i: np.ndarray, scale: np.floating, size: np.floating) -> np.ndarray:
    """Source coordinates of the output elements `i`, in their type."""
    length = scale * size
    match rule.coordinates:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "tf_half_pixel_for_nn":  # opset 11 and 12 only
            return (i + 0.5) / scale
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if length > 1 else np.full_like(i, 0.0 if rule.single else -0.5)
        case "half_pixel_symmetric":
            return size / 2 * (1 - at.out / length) + (i + 0.5) / scale - 0.5
        case "asymmetric":
            return i / scale
        case "align_corners":
            return i * (size - 1) / (length - 1) if length != 1 else np.zeros_like(i)
        case "tf_crop_and_resize":
            begin, end = at.roi
            if at.out == 1:
                return np.full_like(i, 0.5 * (begin + end) * (size - 1))
            return begin * (size - 1) + i * (end - begin) * (size - 1) / (length - 1)
    raise AssertionError(rule.coordinates)


def nearest_indices(rule: Rule, at: Axis) -> np.ndarray:
    """Index of the element that each output copies."""
    x = positions(rule, at)
    down = at.scale < 1
    rounded = {
        "round_prefer_floor": lambda: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda: np.floor(x + 0.5),
        "floor": lambda: np.floor(x),
        "ceil": lambda: np.ceil(x),
        "pytorch": lambda: np.floor(np.arange(at.out) / at.scale),
        "simple": lambda: np.ceil(x) if down else np.floor(x),  # opset 10, as implementations had it
    }
    if rule.nearest not in rounded:
        raise popart_exception(f"Unrecognised resize nearest mode {rule.nearest!r}")
    return np.clip(rounded[rule.nearest](), 0, at.size - 1).astype(np.int64)


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel."""
    d = np.abs(d)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    return np.where(d <= 1, near, np.where(d < 2, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a, 0))


def weights(rule: Rule, at: Axis) -> np.ndarray:
    """Interpolation matrix (out, in) of linear and cubic modes; taps outside the data fall on the border."""
    x = positions(rule, at)
    base = np.floor(x).astype(np.int64)
    shrink = min(at.scale, 1.0) if rule.antialias else 1.0
    radius = 1 if rule.mode == "linear" else 2
    first = int(np.floor(-radius / shrink) + 1)
    offsets = np.arange(first, 2 - first if rule.antialias or radius == 2 else 2)
    distance = (offsets - (x - base)[:, None]) * shrink
    values = np.clip(1 - np.abs(distance), 0, 1) if rule.mode == "linear" else _cubic(distance, rule.cubic_a)
    if rule.antialias:
        values = values / values.sum(1, keepdims=True)
    taps = base[:, None] + offsets
    if rule.exclude_outside:
        values = np.where((taps < 0) | (taps >= at.size), 0, values)
        values = values / values.sum(1, keepdims=True)
    matrix = np.zeros((at.out, at.size))
    np.add.at(matrix, (np.arange(at.out)[:, None], np.clip(taps, 0, at.size - 1)), values)
    return matrix


def _pick(x: Array, index: np.ndarray, axis: int) -> jax.Array:
    """Elements by index; whole-number enlargement is a repetition."""
    factor = len(index) // x.shape[axis]
    if factor and np.array_equal(index, np.repeat(np.arange(x.shape[axis]), factor)):
        return jnp.repeat(x, factor, axis=axis)
    return jnp.take(x, index, axis=axis)


@Computation
def blend(x: jax.Array, matrix: np.ndarray, axis: int) -> jax.Array:
    """The product of `matrix` (out, in), known while tracing, with one axis of x."""
    return jnp.moveaxis(jnp.tensordot(x, jnp.asarray(matrix, x.dtype), ((axis,), (1,))), -1, axis)


def interpolate(x: Array, axes: Sequence[Axis], rule: Rule) -> Array:
    """Resize the given axes, one after the other."""
    if rule.mode not in ("nearest", "linear", "cubic"):
        raise popart_exception(f"Unrecognised resize mode {rule.mode!r}")
    dtype = x.dtype
    outside: list[tuple[int, np.ndarray]] = []
    outs = [at.out for at in axes if not is_symbol(at.out)]
    limits.check_size(outs, dtype.itemsize, "Resize: a result")
    smooth = rule.mode != "nearest"
    y = x.astype(jnp.promote_types(dtype, jnp.float32)) if smooth else x
    for at in axes:
        if smooth:
            y = blend(jnp.asarray(y), weights(rule, at), at.axis)
        else:
            y = _pick(y, nearest_indices(rule, at), at.axis)
        where = positions(rule, at)
        outside.append((at.axis, (where < 0) | (where > at.size - 1)))
    if rule.coordinates == "tf_crop_and_resize":
        for axis, mask in outside:
            shaped = mask.reshape([-1 if d == axis else 1 for d in range(y.ndim)])
            y = jnp.where(shaped, jnp.asarray(rule.extrapolation, y.dtype), y)
    if jnp.issubdtype(dtype, jnp.integer) and smooth:
        bounds = jnp.iinfo(dtype)
        y = jnp.clip(y, bounds.min, bounds.max)
    return y.astype(dtype)


def _plan(
    shape: Sequence[int],
    scales: np.ndarray | None,
    sizes: Any,
    axes: Sequence[int],
    roi: np.ndarray | None,
    policy: str,
) -> list[Axis]:
    """Axes that change, with their sizes and scales.

    Of scales and sizes one has to be given, with a value for each axis: popart_exception otherwise.
    """
    axes = [a % len(shape) for a in axes] if axes else list(range(len(shape)))
    scales, sizes = _scales_or_sizes(scales, sizes)
    given = sizes if scales is None else scales
    if len(given) != len(axes):
        raise popart_exception(
            f"The number of dimensions of the resize op scales ({len(given)}) must match the number of dimensions of "
            f"the input ({len(axes)})"
        )
    if sizes is not None:
        factors = [
            1.0 if n is shape[a] or n == shape[a] else int(n) / shape[a] for n, a in zip(sizes, axes, strict=True)
        ]
        if policy != "stretch":
            pick = {"not_larger": min, "not_smaller": max}[policy](factors)
            factors, sizes = [pick] * len(axes), [int(pick * shape[a] + 0.5) for a in axes]
        outs = [as_size(n) for n in sizes]
    else:
        factors = [float(s) for s in given]
        outs = [shape[a] if s == 1 else scaled_size(shape[a], s) for s, a in zip(given, axes, strict=True)]
    bounds = [(0.0, 1.0)] * len(axes) if roi is None or np.size(roi) == 0 else _pairs(roi)
    found = [Axis(a, shape[a], n, f, r) for a, n, f, r in zip(axes, outs, factors, bounds, strict=True)]
    return [at for at in found if at.out != at.size or at.scale != 1 or at.roi != (0.0, 1.0)]


def scaled_size(size: int, scale: float) -> int:
    """Elements of a resized axis: rounded down, of a product in float32 (29 of 100 by 0.29; float64 gives 28)."""
    return int(np.float32(scale) * np.float32(size))


def _scales_or_sizes(scales: np.ndarray | None, sizes: Any) -> tuple[Any, Any]:
    """Scales and sizes, None for the one that has no data; exactly one of them has."""
    empty = scales is not None and sizes is not None
    scales, sizes = (None if v is None or np.size(v) == 0 else np.asarray(v) for v in (scales, sizes))
    if scales is not None and sizes is not None:
        raise popart_exception(
            "Resize op has inputs for `sizes` and `scales`. Only one of these tensors should be present. If `sizes` is "
            "needed, please pass an empty string as the name of `scales` in the input list ( resize([X, roi, '', "
            "sizes]) ). If the proto is not generated from the PopART Builder, please confirm that only one of the two "
            "tensors shall have data."
        )
    given = sizes if scales is None else scales
    if given is not None and not (np.asarray(given) > 0).all():
        what = "sizes" if scales is None else "scales"
        raise popart_exception(f"Resize: {what} are greater than zero, got {np.asarray(given).tolist()}.")
    if given is None:
        if empty:
            raise popart_exception("Resize op has  inputs for `sizes` and `scales`,but none of them have data.")
        raise popart_exception(
            "Resize op has no input for `size` or `scales`. One of these tensors needs to be present."
        )
    return scales, sizes


def _pairs(roi: np.ndarray) -> list[tuple[float, float]]:
    half = len(roi) // 2
    return [(float(a), float(b)) for a, b in zip(roi[:half], roi[half:], strict=True)]


_MODES = ("nearest", "linear", "cubic")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
_ONNX_COORDINATES = ("half_pixel_symmetric", "tf_half_pixel_for_nn")


def _popart(x: Array, axes: Sequence[Axis], rule: Rule, training: bool) -> Array:
    """Resize with PopART's gradients: floor(i / scale) for nearest, half pixels for cubic, none for linear."""
    for what, name, known in (("mode", rule.mode, _MODES), ("nearest mode", rule.nearest, _NEAREST),
                              ("coordinate transformation mode", rule.coordinates, _COORDINATES)):  # fmt: skip
        if name not in known:
            raise popart_exception(f"Unrecognised resize {what} {name}")
    y = interpolate(x, axes, replace(rule, single=True))
    if rule.coordinates == "tf_crop_and_resize":
        raise until_compiled(popart_exception("Unsupported coordinate transformation mode"), y)
    if not training or not jnp.issubdtype(x.dtype, jnp.floating):
        return y
    if rule.mode == "linear":
        return refuse_gradient(y, "Resize mode 'linear' is not supported when training.", IN_JAX)
    nearest = rule.mode == "nearest"
    back = Rule("nearest", "asymmetric", "floor", single=True) if nearest else Rule(rule.mode, single=True)
    return gradient_of(y, interpolate(x, axes, back))


operator(
    "Resize",
    PER_SAMPLE | ROUNDS,
    gradients="g",
    ranks="roi 1 scales 1 sizes 1",
    parameters={1: "roi", 2: "scales", 3: "sizes"},
    popxl=as_graphcore(),
    not_constant="The tensor `{tensor}` does not have data",
)


@lowers("Resize", 10)
def resize_10(x: Array, scales: Static, /, *, mode: str = "nearest") -> Array:
    return interpolate(x, scaled_axes(x, scales), Rule(_mode(mode), "asymmetric", "simple"))


@lowers("Resize", 10, popart=True)
def popart_resize_10(
    x: Array, scales: Static, /, *, mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "pytorch", training: Training = False,
) -> Array:  # fmt: skip
    """The nearest mode ``pytorch`` rounds down, with asymmetric coordinates."""
    if nearest_mode == "pytorch" and mode == "nearest":
        coordinate_transformation_mode, nearest_mode = "asymmetric", "floor"
    rule = Rule(mode, coordinate_transformation_mode, "floor" if nearest_mode == "pytorch" else nearest_mode)
    _check_scales(scales)
    return _popart(x, scaled_axes(x, scales), rule, training)


@lowers("Upsample", 9, popart=True)
def popart_upsample(x: Array, scales: Static, /, *, mode: str = "nearest") -> Array:
    """Nearest mode only; PopART knows the mode linear but refuses it."""
    if mode not in ("nearest", "linear"):
        raise popart_exception(f"Unrecognised upsample mode {mode}")
    if mode == "linear":
        raise popart_exception("Upsample op only supports the mode 'nearest' at this time.")
    return popart_resize_10(x, scales)


def _check_scales(scales: Any) -> None:
    if scales.dtype not in (np.float32, np.float16):
        raise popart_exception(f"Can not import scales from tensor of type {scales.dtype}")


def scaled_axes(x: Array, scales: Any) -> list[Axis]:
    """The axes that one scale for each axis changes."""
    return _plan(x.shape, scales, None, (), None, "stretch")


@lowers("Resize", 11, 13, 18, 19)
def resize(
    x: Array, roi: Static = None, scales: Static = None, sizes: Static = None, /, *, antialias: int = 0,
    axes: Sequence[int] = (), coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = CUBIC,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Array:  # fmt: skip
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    where = _plan(x.shape, scales, sizes, axes, roi if crop else None, keep_aspect_ratio_policy)
    rule = Rule(
        _mode(mode), coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside),
        bool(antialias), extrapolation_value,
    )  # fmt: skip
    return interpolate(x, where, rule)


@lowers("Resize", 11, popart=True, refuses=True)
def popart_resize(
    x: Array, roi: Static = None, scales: Static = None, sizes: Static = None, /, *, antialias: int = 0,
    axes: Sequence[int] = (), coordinate_transformation_mode: str = "half_pixel", exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
    training: Training = False,
) -> Array:  # fmt: skip
    """The cubic coefficient is fixed."""
    if sizes is not None and np.size(sizes) not in (0, x.ndim):
        raise popart_exception(
            f"ResizeOp, length of sizes ({np.size(sizes)}) does not match the rank of input shape ({x.ndim})"
        )
    if exclude_outside:
        raise OpError(
            f"{{opid}}: Unsupported value '{exclude_outside}' for attribute 'exclude_outside'. Acceptable values are "
            "[0]",
            "Resize",
        )
    if scales is not None and np.size(scales):
        _check_scales(scales)
    where = _plan(x.shape, scales, sizes, axes, None, keep_aspect_ratio_policy)
    rule = Rule(mode, coordinate_transformation_mode, nearest_mode, CUBIC, antialias=bool(antialias))
    return _popart(x, where, rule, training)


def _mode(name: str) -> str:
    return {"bilinear": "linear"}.get(name, name)


operator(
    "Upsample",
    PER_SAMPLE | ROUNDS,
    ranks="scales 1",
    parameters={1: "scales"},
    removed_by="UpsampleToResize",
    not_constant="Scales tensor has no data",
)


@lowers("Upsample", 1)
def upsample_1(x: Array, /, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Array:
    return upsample(x, np.asarray([1, 1, height_scale, width_scale], np.float32), mode=mode)


@lowers("Upsample", 7)
def upsample_7(x: Array, /, *, scales: Sequence[float], mode: str = "nearest") -> Array:
    return upsample(x, np.asarray(scales, np.float32), mode=mode)


@lowers("Upsample", 9, 10)
def upsample(x: Array, scales: Static, /, *, mode: str = "nearest") -> Array:
    return interpolate(x, scaled_axes(x, scales), Rule(_mode(mode), "asymmetric", "floor"))
