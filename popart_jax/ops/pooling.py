"""Pooling: maximum, average, Lp, global forms, MaxUnpool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import popart_exception
from .arrays import Array, device_dtype, is_float, listed, lowest, wide, wrap_indices
from .gradients import may_be_computed_again
from .kernels import Computation
from .operator import PER_SAMPLE, ROUNDS, WIDE_RESULT, as_onnx, operator
from .options import DEFAULTS
from .reduce import extremum_over
from .registry import Options, OutputCount, Static, lowers
from .two_way import two_way
from .windows import Window, pairs, per_dim, positive, taps, window


def padded(x: Array, win: Window, value: Any) -> jax.Array:
    lead = ((0, 0, 0),) * (x.ndim - len(win.kernel))
    return lax.pad(x, jnp.asarray(value, x.dtype), (*lead, *((lo, hi, 0) for lo, hi in win.padding)))


@Computation
def fold_windows(x: Array, win: Window, neutral: Any, pair: Any, whole: Any) -> jax.Array:
    """Fold the windows, padded with the neutral element; `pair` and `whole` are the operation in JAX's two styles."""
    lead = (1,) * (x.ndim - len(win.kernel))
    padding = ((0, 0),) * len(lead) + win.padding
    dims, steps, dils = lead + win.kernel, lead + win.strides, lead + win.dilations
    return lax.reduce_window(x, np.asarray(neutral, x.dtype), whole, dims, steps, padding, window_dilation=dils)


@Computation
def share_gradient(x: jax.Array, y: jax.Array, g: jax.Array, win: Window, ties: bool) -> jax.Array:
    """Every element's sum of the gradients `g` of those windows whose maximum `y` it equals.

    Without `ties` the first maximum of a window has its gradient alone.
    """

    def windows(v: jax.Array) -> list[jax.Array]:
        return taps(padded(v, win, lowest(v.dtype)), win)

    found, back = cast("tuple[list[jax.Array], Callable[..., Any]]", jax.vjp(windows, x))
    first = first_maxima(found, x, win, ties)

    def is_hit(i: int, tap: jax.Array) -> jax.Array:
        if not ties:
            return cast("jax.Array", first) == i
        return tap == y if first is None else (tap == y) | (first == i)

    hits = (is_hit(i, tap) for i, tap in enumerate(found))
    return back([jnp.where(hit, g, 0) for hit in hits])[0]


def first_maxima(found: Sequence[jax.Array], x: jax.Array, win: Window, ties: bool) -> jax.Array | None:
    """Which of the taps of `x` is the first maximum of each window; None if comparing with the maximum is enough."""
    if ties and not may_be_computed_again(x):
        return None
    return _first_largest(found, np.int32(-1) if ties else _first_inside(win, x.shape))


def _first_largest(found: Sequence[jax.Array], otherwise: np.ndarray | np.int32) -> jax.Array:
    """Which of the arrays holds the largest element, at each place; `otherwise` where all are the lowest, or NaN."""
    best, at = jnp.full_like(found[0], lowest(found[0].dtype)), jnp.broadcast_to(otherwise, found[0].shape)
    for i, tap in enumerate(found):
        at = jnp.where(tap > best, i, at)
        best = jnp.maximum(best, tap)
    return at


def _first_inside(win: Window, shape: Sequence[int]) -> np.ndarray:
    """The first element of each window that is no padding, counted in row-major order of the kernel."""
    first: Any = np.int32(0)
    spatial = zip(win.kernel, win.positions, win.strides, win.dilations, win.padding, strict=True)
    for size, (kernel, count, stride, apart, (before, _)) in zip(shape[-len(win.kernel) :], spatial, strict=True):
        at = np.arange(count)[:, None] * stride + np.arange(kernel) * apart - before
        first = first[..., None] * np.int32(kernel) + np.argmax((at >= 0) & (at < size), axis=1).astype(np.int32)
    return first


@partial(two_way, nondiff_argnums=(1, 2))
def max_pool_values(x: jax.Array, win: Window, ties: bool) -> Any:
    """Maxima of the windows; with `ties` every element equal to its window's maximum gets the full gradient."""
    return fold_windows(x, win, lowest(x.dtype), jnp.maximum, lax.max)


def _max_pool_fwd(x: jax.Array, win: Window, ties: bool) -> tuple[Any, Any]:
    y = max_pool_values(x, win, ties)
    return y, (x, y)


def _max_pool_bwd(win: Window, ties: bool, saved: Any, g: jax.Array) -> tuple[jax.Array]:
    x, y = saved
    return (share_gradient(x, y, g, win, ties),)


max_pool_values.defvjp(_max_pool_fwd, _max_pool_bwd)


def max_pool_indices(x: Array, y: Any, win: Window, storage_order: int) -> jax.Array:
    """Flat position in the whole tensor of each window's first maximum, INT64."""
    rank = len(win.kernel)
    sizes = x.shape[2:]
    order = range(rank) if storage_order else range(rank - 1, -1, -1)
    weights, step = [0] * rank, 1
    for axis in order:
        weights[axis], step = step, step * sizes[axis]
    grids = np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")
    flat = sum(g * w for g, w in zip(grids, weights, strict=True))
    kind = device_dtype(np.int64)
    values = taps(padded(x, win, lowest(x.dtype)), win)
    places = taps(padded(jnp.asarray(flat, kind)[None, None], win, -1), win)
    found = jnp.full(y.shape, -1, kind)
    for value, place in zip(values, places, strict=True):
        same = (value == y) | (jnp.isnan(value) & jnp.isnan(y)) if is_float(x) else value == y
        found = jnp.where((found < 0) & same & (place >= 0), place, found)
    plane = jnp.arange(prod(x.shape[:2]), dtype=kind).reshape(*x.shape[:2], *(1,) * rank) * prod(sizes)
    return jnp.where(found < 0, found, found + plane)


operator(
    "MaxPool",
    PER_SAMPLE | WIDE_RESULT,
    gradients="g x0 y0",
    ranks="X 3+",
    popxl=as_onnx(11, runs=11, base="HasReceptiveFieldOp"),
)


@lowers("MaxPool", 1, 8, 10, 11, 12, 22)
def max_pool(
    x: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] = (), pads: Sequence[int] = (), storage_order: int = 0, strides: Sequence[int] = (),
    n_outputs: OutputCount = 1, options: Options = DEFAULTS,
) -> Array | tuple[Array, ...]:  # fmt: skip
    win = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    y = max_pool_values(x, win, options.whole_gradient_of_ties)
    return (y, max_pool_indices(x, y, win, storage_order)) if n_outputs > 1 else y


@lowers("MaxPool", 1, popart=True, refuses=True, like=max_pool)
def popart_max_pool(
    x: Array, /, *, dilations: Sequence[int] = (), storage_order: int = 0, **rest: Any
) -> Array | tuple[Array, ...]:
    """PopART's MaxPool, without dilations and storage order."""
    if storage_order:
        raise popart_exception("storage_order != 0, not supported")
    if any(d != 1 for d in dilations):
        raise popart_exception(
            f"MaxPool has dilations {listed(dilations)}. Dilations of value other than 1 are currently not supported."
        )
    return max_pool(x, **rest)


def window_sum(x: Array, win: Window) -> jax.Array:
    """Sums of the windows, padding counting as zero; of floats in at least single precision."""
    return fold_windows(wide(x) if is_float(x) else x, win, 0, jnp.add, lax.add)


def _counts(sizes: tuple[int, ...], win: Window, include_pad: int) -> np.ndarray:
    """Elements that each average divides by; the overhang of ceil_mode never counts."""
    total = np.ones((), np.int64)
    per_axis = zip(sizes, win.kernel, win.strides, win.dilations, win.pads, win.positions, strict=True)
    for size, kernel, step, dil, (lo, hi), n in per_axis:
        at = cast("np.ndarray", np.arange(n)[:, None] * step + np.arange(kernel) * dil)
        valid = (at < size + lo + hi) if include_pad else (at >= lo) & (at < size + lo)
        total = np.multiply.outer(total, valid.sum(1))
    return np.maximum(total, 1)


operator(
    "AveragePool",
    PER_SAMPLE | ROUNDS,
    gradients="g x0 y0",
    ranks="X 3+",
    popxl=as_onnx(11, runs=19, base="HasReceptiveFieldOp"),
)


@lowers("AveragePool", 1, 7, 10, 11, 19, 22)
def average_pool(
    x: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    win = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    counts = _counts(x.shape[2:], win, count_include_pad)
    total = window_sum(x, win)
    return (total / jnp.asarray(counts, total.dtype)).astype(x.dtype)


@lowers("AveragePool", 1, popart=True, refuses=True, like=average_pool)
def popart_average_pool(x: Array, /, *, count_include_pad: int = 0, **rest: Any) -> jax.Array:
    """Padding never counts."""
    if count_include_pad:
        raise popart_exception("`count_include_pad` is not supported")
    return average_pool(x, **rest)


def lp_norm(power_sum: jax.Array, p: float) -> jax.Array:
    """p-th root with gradient 0 (not NaN) where the sum is 0."""
    if p == 0:
        raise popart_exception("p must not be 0")
    safe = jnp.where(power_sum == 0, 1, power_sum)
    return jnp.where(power_sum == 0, 0, safe ** (1.0 / p)).astype(power_sum.dtype)


def _power(x: Array, p: float) -> Array:
    return jnp.abs(x) if p == 1 else x * x if p == 2 else jnp.abs(x) ** p


operator("LpPool", ranks="X 3+")


@lowers("LpPool", 1, 2, 11, 18, 22)
def lp_pool(
    x: Array, /, *, kernel_shape: Sequence[int] = (), auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] = (), p: int = 2, pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    win = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return lp_norm(window_sum(_power(wide(x), p), win), p).astype(x.dtype)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


operator("GlobalAveragePool", PER_SAMPLE | ROUNDS, gradients="g x0 y0", ranks="X 3+")


@lowers("GlobalAveragePool", 1, 22)
def global_average_pool(x: Array, /) -> Array:
    return x.mean(_spatial(x), keepdims=True)


operator("GlobalMaxPool", PER_SAMPLE, gradients="g x0 y0", ranks="X 3+")


@lowers("GlobalMaxPool", 1, 22)
def global_max_pool(x: Array, /, *, options: Options = DEFAULTS) -> Array:
    whole, ties = window(x.shape[2:], x.shape[2:], (), (), ()), options.whole_gradient_of_ties
    large = not ties or prod(x.shape[2:]) > 64
    return extremum_over(_max, x, _spatial(x), ties) if large else max_pool_values(x, whole, ties)


def _max(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return x.max(axes, keepdims=True)


operator("GlobalLpPool", ranks="X 3+")


@lowers("GlobalLpPool", 1, 2, 22)
def global_lp_pool(x: Array, /, *, p: int = 2) -> jax.Array:
    return lp_norm(_power(x, p).sum(_spatial(x), keepdims=True), p)


operator("MaxUnpool", ranks="X 3+ I =X output_shape 1")


@lowers("MaxUnpool", 9, 11, 22)
def max_unpool(
    x: Array, indices: Array, output_shape: Static = None, /, *, kernel_shape: Sequence[int],
    pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Scatter values to their flat positions, zeros elsewhere; positions refer to the shape that the window implies."""
    rank = x.ndim - 2
    steps = positive("strides", per_dim("strides", strides, rank))
    spans = zip(x.shape[2:], steps, positive("kernel_shape", kernel_shape), pairs(pads, rank), strict=True)
    shape = (*x.shape[:2], *((n - 1) * s + k - lo - hi for n, s, k, (lo, hi) in spans))
    where = wrap_indices(indices.reshape(-1), prod(shape))
    flat = jnp.zeros(prod(shape), x.dtype).at[where].set(x.reshape(-1)).reshape(shape)
    if output_shape is None:
        return flat
    if len(output_shape) != x.ndim or any(int(w) < n for w, n in zip(output_shape, shape, strict=True)):
        raise popart_exception(f"MaxUnpool: output_shape {list(output_shape)} is smaller than {list(shape)}")
    return lax.pad(flat, jnp.zeros((), x.dtype), [(0, int(w) - n, 0) for w, n in zip(output_shape, shape, strict=True)])
