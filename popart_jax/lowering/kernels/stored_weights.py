"""Convolutions as products with weights in the order in which ONNX stores them, (M, C, ...).

Who jits a function of ours passes the weights at each call, and XLA's convolution wants them turned, by one thread: 0.8
of the time of small networks that listen to speech. A product reads them as they are. What it needs instead is each
window's data in a row, which is less to write where there are fewer places than filters: 0.33 of the time for 3 x 3 x
512 to 512 by 3 x 3, 0.44 for 22 windows of 512 numbers to 257, but 1.1 for 49 places to 64 filters.

The weights come turned; XLA drops that when all of them are turned back, and sees nothing of it otherwise.

Sounds have one channel, which convolutions use badly. With windows of a few strides, rows take 0.4 to 0.85 of oneDNN's
time and 0.6 to 1.2 of XLA's: 2 x 16,000 to 160 by 475 at stride 441 0.18, 0.44 and 0.15 ms, to 402 by 400 at stride 160
0.40, 0.66 and 0.57, 16,000 to 512 by 10 at stride 5 0.32, 0.43 and 0.40; of 20 strides 1.8, 0.93 and 1.3. Where there
is little to multiply, oneDNN is no choice, and XLA's convolution is faster for few places or short windows (40 random
shapes, by it and by rows): 3 of 256 numbers to 258 30 and 59 us, 999 of 16 to 129 79 and 103; but 22 of 512 to 257 108
and 76, 125 of 128 to 32 51 and 23, 494 of 64 to 129 116 and 94.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...ops.arrays import Array, merge_axes
from ...ops.linalg import matmul
from ...ops.primitives import times_swapped, times_turned
from ...ops.registry import lowers
from ...ops.windows import Window, padded, taps
from . import DOMAIN
from .depthwise_last import with_channels
from .few_places import has_few_places

_MANY_SLICES = 16
_MANY_WEIGHTS = 4096
_FEW_STRIDES, _LONG_WINDOW = 4, 8
_SOME_PLACES, _LONG_FRAME, _SMALL = 16, 64, 4_000_000


@lowers("MatMul", domain=DOMAIN)
def matmul_with_swapped(x: Array, y: Array, /) -> Array:
    """MatMul of x with y, whose last two dimensions are swapped."""
    return times_swapped(x, y) if _are_rows(x, y) else matmul(x, y.swapaxes(-1, -2))


def _are_rows(x: Array, y: Array) -> bool:
    """Whether both have rows of as many floats, with the same leading dimensions unless y is a matrix."""
    alike = x.ndim > 0 and x.shape[-1] == y.shape[-1] and x.dtype == y.dtype == np.float32
    return bool(alike) and (y.ndim == 2 or x.shape[:-2] == y.shape[:-2])


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Product of rows (..., C taps) with turned weights (..., C, M); 0.8 ms in place of 2.5 for 49 x 2,048 to 512."""
    return times_turned(x, w.transpose(-1, -2, *range(w.ndim - 2)).reshape(w.shape[-1], -1))


def suits_rows(x: Any, w: Any, win: Window) -> bool:
    """Whether rows are less work than turned weights; for sizes that are known."""
    few_slices = min(math.prod(win.kernel), _blocks(win)) <= _MANY_SLICES
    return has_few_places(x, w, win) and w.size >= _MANY_WEIGHTS and few_slices


def suits_sound(x: Any, win: Window) -> bool:
    """Whether it is a long window over one channel and one dimension, which moves on by much of its length."""
    line = _line(win)
    if line is None or x.shape[-1] != 1 or line.kernel[0] < _LONG_WINDOW:
        return False
    return line.strides[0] > 1 and _blocks(line) <= _FEW_STRIDES


def suits_short_sound(x: Any, w: Any, win: Window) -> bool:
    """The same for a sound that has little to multiply."""
    places = x.shape[0] * math.prod(win.positions)
    frames = places >= _SOME_PLACES and win.kernel[-1] >= _LONG_FRAME and places * w.size < _SMALL
    return frames and suits_sound(x, win)


def _line(win: Window) -> Window | None:
    """The window over the last dimension, if those before it are passed place by place."""
    before = zip(win.kernel, win.strides, win.pads, strict=True)
    if any(one != (1, 1, (0, 0)) for one in [*before][:-1]):
        return None
    last = (win.kernel[-1:], win.strides[-1:], win.dilations[-1:])
    return Window(*last, win.pads[-1:], win.positions[-1:], win.overhang[-1:])


def by_rows(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """The correlation of x (N, ..., C) with turned weights (..., C, M)."""
    line = _line(win)
    if line is not None and line != win:
        flat = by_rows(x.reshape(-1, *x.shape[-2:]), w.reshape(w.shape[-3:]), line)
        return flat.reshape(*x.shape[:-2], *flat.shape[-2:])
    data = padded(x, win)
    slices = _frames(data, win) if _blocks(win) < math.prod(win.kernel) else _windows(data, win)
    return product(merge_axes(slices, len(win.kernel) + 1), w)


def _windows(x: jax.Array, win: Window) -> jax.Array:
    """(N, places, C, taps), from one slice for each tap."""
    return jnp.stack(taps(x, with_channels(win, x.shape[-1])), -1)


def _blocks(win: Window) -> int:
    """How many pieces as long as the stride a window has, along one dimension."""
    single = len(win.kernel) == 1 and win.dilations == (1,)
    return -(-win.kernel[0] // win.strides[0]) if single else math.prod(win.kernel)


def _frames(x: jax.Array, win: Window) -> jax.Array:
    """(N, places, C, taps) along one dimension, from a few slices of pieces as long as the stride."""
    (kernel,), (stride,), (places,), blocks = win.kernel, win.strides, win.positions, _blocks(win)
    count, channels = places + blocks - 1, x.shape[-1]
    short = max(count * stride - x.shape[1], 0)
    pieces = jnp.pad(x, ((0, 0), (0, short), (0, 0)))[:, : count * stride].reshape(-1, count, stride, channels)
    joined = jnp.concatenate([pieces[:, i : i + places] for i in range(blocks)], 2)
    return joined[:, :, :kernel].swapaxes(-1, -2)
