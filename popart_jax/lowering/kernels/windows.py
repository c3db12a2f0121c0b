"""Sliding windows as shifted slices, which XLA fuses.

XLA:CPU's windowed reduction and its gradient are scalar code (jaxlib 0.10).
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...ops.arrays import lowest, merge_axes
from ...ops.gradients import may_be_computed_again, pulled_back
from ...ops.kernels import IPU, XLA
from ...ops.pooling import first_maxima, fold_windows, padded, share_gradient
from ...ops.windows import Window, taps

_FEW_TAPS, _MANY_TAPS = 16, 32


@fold_windows.form_for("cpu")
def fold_taps(x: jax.Array, win: Window, neutral: Any, pair: Any, whole: Any) -> jax.Array:
    """Small windows as shifted slices, larger ones in the same way along one dimension after the other.

    Windows that are very long along one dimension are left to XLA's windowed reduction.
    """
    if max(win.kernel, default=1) > _MANY_TAPS:
        return fold_windows.plain(x, win, neutral, pair, whole)
    long = [axis for axis, n in enumerate(win.kernel) if n > 1]
    if prod(win.kernel) > _FEW_TAPS and len(long) > 1:
        for axis in range(len(win.kernel)):
            x = fold_taps(x, _along(win, axis, x.shape), neutral, pair, whole)
        return x
    if max(win.strides) > 1 and any(map(any, win.padding)) and all(v >= 0 for pad in win.padding for v in pad):
        return reduce(pair, _taps_of_unpadded(x, win, neutral))
    return reduce(pair, taps(padded(x, win, neutral), win))


def _along(win: Window, axis: int, shape: tuple[int, ...]) -> Window:
    """The window restricted to one dimension of data of this shape; along the others its size is 1."""
    sizes = shape[len(shape) - len(win.kernel) :]

    def only(values: tuple[Any, ...], others: Any) -> tuple[Any, ...]:
        return tuple(v if i == axis else others for i, v in enumerate(values))

    positions = tuple(win.positions[i] if i == axis else size for i, size in enumerate(sizes))
    steps, apart = only(win.strides, 1), only(win.dilations, 1)
    return Window(only(win.kernel, 1), steps, apart, only(win.pads, (0, 0)), positions, only(win.overhang, 0))


def _taps_of_unpadded(x: jax.Array, win: Window, neutral: Any) -> list[jax.Array]:
    """The taps, each padded where it reads beyond the data: with strides that writes less than padding the data."""
    lead = x.ndim - len(win.kernel)
    found: list[jax.Array] = []
    for index in product(*map(range, win.kernel)):
        spans = [
            _span(i * d - lo, s, size, n)
            for i, d, (lo, _), s, size, n in zip(
                index, win.dilations, win.padding, win.strides, x.shape[lead:], win.positions, strict=True
            )
        ]
        inside = [max(last - first, 0) for first, last, _ in spans]
        begin = [start if n else 0 for (_, _, start), n in zip(spans, inside, strict=True)]
        end = [b + (n - 1) * s + 1 if n else 0 for b, n, s in zip(begin, inside, win.strides, strict=True)]
        part = lax.slice(x, (0,) * lead + tuple(begin), x.shape[:lead] + tuple(end), (1,) * lead + win.strides)
        margins = [
            (f, n - last, 0) if k else (n, 0, 0)
            for (f, last, _), k, n in zip(spans, inside, win.positions, strict=True)
        ]
        found.append(lax.pad(part, jnp.asarray(neutral, x.dtype), ((0, 0, 0),) * lead + tuple(margins)))
    return found


def _span(offset: int, stride: int, size: int, positions: int) -> tuple[int, int, int]:
    """First and one past the last position whose element at `offset` is in the data, and the first's index there."""
    first = max(0, -(offset // stride))
    last = min(positions, (size - 1 - offset) // stride + 1)
    return first, max(first, last), first * stride + offset


@share_gradient.form_for(IPU)
def share_by_vertex(x: jax.Array, y: jax.Array, g: jax.Array, win: Window, ties: bool) -> jax.Array:
    """The gradient as the single operation that the IPU has for it; JAX has none for dilated windows."""
    if max(win.dilations) > 1:
        return share_gradient.plain(x, y, g, win, ties)
    return pulled_back(lambda v: fold_windows.plain(v, win, lowest(v.dtype), jnp.maximum, lax.max), x, g)


@share_gradient.form_for(XLA)
def share_tiles(x: jax.Array, y: jax.Array, g: jax.Array, win: Window, ties: bool) -> jax.Array:
    """Windows that tile the data need no sums; without `ties` JAX's own gradient gives it to the first maximum."""
    if may_be_computed_again(x) and prod(win.kernel) <= _MANY_TAPS:
        return _share(x, y, g, win, ties, first_maxima(taps(padded(x, win, lowest(x.dtype)), win), x, win, ties))
    if not ties:
        return share_by_vertex(x, y, g, win, ties)
    if not _tiles(win, x.shape[x.ndim - len(win.kernel) :]):
        return _share(x, y, g, win, ties)
    y, g = (v.reshape(_tiled(v.shape, win, False)) for v in (y, g))
    return jnp.where(x.reshape(_tiled(x.shape, win, True)) == y, g, 0).reshape(x.shape)


def _share(
    x: jax.Array, y: jax.Array, g: jax.Array, win: Window, ties: bool, first: jax.Array | None = None
) -> jax.Array:
    """For every element, the sum of the gradients of those windows whose `first` maximum it is, or with `ties` equals.

    The elements are processed by residue of their position modulo the strides, so that each window is read once per tap
    and nothing is dilated with zeros: 8 x 112 x 112 x 64 by 3 x 3 at stride 2 take 20 ms in place of 86.
    """
    lead, sizes = x.ndim - len(win.kernel), x.shape[x.ndim - len(win.kernel) :]
    begins = [lo for lo, _ in win.pads]
    blocks = [
        max(-(-(lo + size) // s), (r - 1) // s + n)
        for lo, size, s, r, n in zip(begins, sizes, win.strides, win.reach, win.positions, strict=True)
    ]
    back = [(r - 1) // s for r, s in zip(win.reach, win.strides, strict=True)]
    margins = ((0, 0),) * lead + tuple((b, n - p) for b, n, p in zip(back, blocks, win.positions, strict=True))
    windows, gradients = jnp.pad(y, margins), jnp.pad(g, margins)
    firsts = None if first is None else jnp.pad(first, margins, constant_values=-1)
    ends = [n * s - lo - size for n, s, lo, size in zip(blocks, win.strides, begins, sizes, strict=True)]
    config = [(0, 0, 0)] * lead + [(lo, hi, 0) for lo, hi in zip(begins, ends, strict=True)]
    data = lax.pad(x, jnp.asarray(lowest(x.dtype)), config)
    parts: dict[tuple[int, ...], jax.Array] = {}
    for number, index in enumerate(product(*map(range, win.kernel))):
        at = [i * d for i, d in zip(index, win.dilations, strict=True)]
        phase = tuple(a % s for a, s in zip(at, win.strides, strict=True))
        starts = [b - a // s for b, a, s in zip(back, at, win.strides, strict=True)]
        cut = (..., *(slice(start, start + n) for start, n in zip(starts, blocks, strict=True)))
        elements = data[(..., *(slice(p, None, s) for p, s in zip(phase, win.strides, strict=True)))]
        hits = [elements == windows[cut]] if ties else []
        hits += [] if firsts is None else [firsts[cut] == number]
        share = jnp.where(reduce(jnp.logical_or, hits), gradients[cut], 0)
        parts[phase] = parts[phase] + share if phase in parts else share
    nothing = jnp.zeros((*x.shape[:lead], *blocks), g.dtype)
    whole = _interleave(parts, win.strides, nothing, lead)
    return whole[(..., *(slice(lo, lo + size) for lo, size in zip(begins, sizes, strict=True)))]


def _interleave(parts: Any, strides: tuple[int, ...], nothing: jax.Array, lead: int, at: tuple[int, ...] = ()) -> Any:
    """Arrays by residue of the position, interleaved back into one array."""
    axis = len(at)
    if axis == len(strides):
        return parts.get(at, nothing)
    pieces = [_interleave(parts, strides, nothing, lead, (*at, phase)) for phase in range(strides[axis])]
    if len(pieces) == 1:
        return pieces[0]
    joined = jnp.stack(pieces, lead + axis + 1)
    return merge_axes(joined, lead + axis, lead + axis + 2)


def _tiles(win: Window, sizes: tuple[int, ...]) -> bool:
    """Whether the windows tile the data without remainder."""
    plain = win.strides == win.kernel and set(win.dilations) == {1} and not any(map(any, win.padding))
    return plain and all(n * k == size for n, k, size in zip(win.positions, win.kernel, sizes, strict=True))


def _tiled(shape: tuple[int, ...], win: Window, inner: bool) -> tuple[int, ...]:
    """Shape with every spatial axis split into window position and offset in the window (1 unless `inner`)."""
    lead = shape[: len(shape) - len(win.kernel)]
    split = ((n, k if inner else 1) for n, k in zip(win.positions, win.kernel, strict=True))
    return (*lead, *(n for pair in split for n in pair))
