"""Geometry of sliding windows: what convolutions and poolings share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import jax
import numpy as np
from jax import lax

from ..errors import noted, popart_exception
from .arrays import listed

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, strides, dilations, (low, high) padding and number of positions, one entry per spatial dimension.

    `overhang` is what rounding up (ceil_mode) lets the last position reach beyond the padded data.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    positions: tuple[int, ...]
    overhang: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """Elements from the first to the last tap of the dilated kernel."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def padding(self) -> Pads:
        """Padding with the overhang counted in."""
        return tuple((lo, hi + over) for (lo, hi), over in zip(self.pads, self.overhang, strict=True))


def pairs(pads: Sequence[int], rank: int) -> Pads:
    """ONNX pads (all begins, then all ends) as (low, high) per dimension; empty means none.

    Negative values raise popart_exception, and so does another number of values than two for each dimension.
    """
    if not pads:
        return ((0, 0),) * rank
    if len(pads) != 2 * rank:
        raise popart_exception(
            f"Padding vector (length {len(pads)}) does not have 2 values for each spatial dimension {rank}"
        )
    if min(pads) < 0:
        raise popart_exception(f"pads {list(pads)} must not be negative")
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def per_dim(name: str, values: Sequence[int], rank: int) -> tuple[int, ...]:
    """A list attribute with one entry per dimension; empty means ones."""
    if values and len(values) != rank:
        raise popart_exception(f"Length of {name} vector {len(values)} != number of spatial dimensions {rank}")
    return tuple(values) or (1,) * rank


def positive(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """A list of sizes or steps, each at least 1."""
    if min(values, default=1) < 1:
        raise popart_exception(f"{name} {list(values)} must be positive")
    return tuple(values)


def fitting(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Sizes or steps whose products are still counted in 64 bits."""
    if max(values, default=0) > _MOST:
        raise popart_exception(f"{name} {list(values)} must be at most {_MOST}")
    return tuple(values)


_MOST = (1 << 31) - 1


def split_padding(total: int, auto_pad: str) -> tuple[int, int]:
    """Padding in halves; the odd one goes to the end for SAME_UPPER, to the start for SAME_LOWER."""
    small, large = total // 2, total - total // 2
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def window(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Window:
    """Resolve the window attributes of a node against its data.

    Source: the shape formulas of ONNX Conv-22 and MaxPool-22. Raises popart_exception for lists of wrong length, an
    unknown `auto_pad`, or a kernel larger than the padded data.
    """
    rank = len(sizes)
    if len(kernel) != rank:
        raise popart_exception("invalid kernel_shape, not same rank as the tensor operated on")
    steps, dils = per_dim("strides", strides, rank), per_dim("dilations", dilations, rank)
    for name, values in (("kernel_shape", kernel), ("strides", steps), ("dilations", dils)):
        positive(name, values)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dils, strict=True)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        needed = [(-(-n // s) - 1) * s + r - n for n, s, r in zip(sizes, steps, spans, strict=True)]
        padded = tuple(split_padding(max(0, p), auto_pad) for p in needed)
    else:
        check_auto_pad(auto_pad)
        padded = pairs(pads if auto_pad != "VALID" else (), rank)
    counted = [_positions(*dim, ceil_mode) for dim in zip(sizes, spans, steps, padded, strict=True)]
    if any(count < 1 for count, _ in counted):
        shape = listed([count for count, _ in counted])
        raise noted(
            popart_exception(f"Window parameter values combine to give invalid spatial output shape: {shape}"),
            f"The window spans {spans} elements; the data have {list(sizes)}, padded by {list(padded)}.",
        )
    return Window(tuple(kernel), steps, dils, padded, *zip(*counted, strict=True)) if rank else Window(*[()] * 6)


def check_auto_pad(auto_pad: str) -> None:
    """Raise popart_exception unless ONNX knows this `auto_pad`."""
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""):
        raise popart_exception(f"Invalid auto_pad provied: {auto_pad}")


def _positions(size: int, span: int, step: int, pad: tuple[int, int], ceil_mode: int) -> tuple[int, int]:
    room = size + sum(pad) - span
    count = room // step + 1
    if ceil_mode and room % step and count * step < size + pad[0]:  # else it would begin in the end padding
        count += 1
    return count, max(0, (count - 1) * step + span - size - sum(pad))


def padded(x: jax.Array, win: Window) -> jax.Array:
    """x (N, ..., C) with the window's zeros around it."""
    return lax.pad(x, np.zeros((), x.dtype), [(low, high, 0) for low, high in ((0, 0), *win.pads, (0, 0))])


def only_read(x: jax.Array, win: Window) -> tuple[jax.Array, Window]:
    """Data (N, ..., C) of known sizes and window, without data and padding that no position reads.

    Padding below zero at the start says how much of the data comes before the first position.
    """
    kept: list[slice] = []
    pads: list[tuple[int, int]] = []
    read = [(n - 1) * s + r for n, s, r in zip(win.positions, win.strides, win.reach, strict=True)]
    for span, (low, _), size in zip(read, win.pads, x.shape[1:-1], strict=True):
        high = span - size - low
        kept.append(slice(max(-low, 0), size + min(high, 0)))
        pads.append((max(low, 0), max(high, 0)))
    return x[(slice(None), *kept)], replace(win, pads=tuple(pads))


def taps(x: jax.Array, win: Window) -> list[jax.Array]:
    """One strided slice of the padded data per kernel element, in row-major order of the kernel."""
    lead = x.ndim - len(win.kernel)
    stops = [(n - 1) * s + 1 for n, s in zip(win.positions, win.strides, strict=True)]
    found: list[jax.Array] = []
    for index in product(*map(range, win.kernel)):
        starts = [i * d for i, d in zip(index, win.dilations, strict=True)]
        begin = (0,) * lead + tuple(starts)
        end = x.shape[:lead] + tuple(a + b for a, b in zip(starts, stops, strict=True))
        found.append(lax.slice(x, begin, end, (1,) * lead + win.strides))
    return found
