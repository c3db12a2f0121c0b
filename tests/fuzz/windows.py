"""Drawn convolutions by oneDNN beside NumPy: rare windows were wrong there, or ended the process."""

from __future__ import annotations

import random
from dataclasses import dataclass

import jax
import numpy as np

from popart_jax.lowering.kernels import onednn, ordered_weights
from popart_jax.ops.kernels import staying
from popart_jax.ops.windows import Window, window

from ..isolated import Handler, Phase
from ..lowering.sums import tap_by_tap

_SIZES = (1, 2, 3, 5, 7, 8, 14, 16, 30)
_MOST = 3_000_000
"""Elements under all windows."""


@dataclass(frozen=True)
class Drawn:
    """A convolution of whole numbers: data (N, ..., C), weights (..., C/group, M), and for floats a bias (M)."""

    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray | None
    group: int
    win: Window
    stored: bool


def draw(seed: int) -> Drawn:
    """The convolution with a given number."""
    dice, rng = random.Random(seed), np.random.default_rng(seed)
    while True:
        rank = dice.choice((1, 2, 2, 2, 3))

        def some(*choices: int, rank: int = rank) -> list[int]:
            return [dice.choice(choices) for _ in range(rank)]

        sizes, kernel = some(*_SIZES[: 9 if rank < 3 else 6]), some(1, 2, 3, 3, 5, 7)
        strides, dilations = some(1, 1, 2, 3), some(1, 1, 1, 2)
        pads = [*some(0, 0, 1, 2, 3), *some(0, 0, 1, 2, 3)]
        padded = [n + low + high for n, low, high in zip(sizes, pads[:rank], pads[rank:], strict=True)]
        if any(n < (k - 1) * d + 1 for n, k, d in zip(padded, kernel, dilations, strict=True)):
            continue
        group, channels, filters = dice.choice(
            ((1, dice.choice((1, 2, 3, 8, 16, 33, 64)), dice.choice((1, 2, 8, 16, 33, 64))),
             (dice.choice((2, 3, 8)), dice.choice((1, 2, 4, 8)), dice.choice((1, 2, 4, 8))),
             (dice.choice((8, 16, 24, 40)), 1, 1))
        )  # fmt: skip
        win = window(sizes, kernel, strides, dilations, pads, "NOTSET")
        batch = dice.choice((1, 1, 2, 8))
        if batch * np.prod(win.positions) * np.prod(kernel) * channels * group <= _MOST:
            break
    floats, has_bias = dice.random() < 0.5, dice.random() < 0.5
    x = rng.integers(0, 256, (batch, *sizes, channels * group)).astype(np.uint8)
    w = rng.integers(-128, 128, (*kernel, channels, filters * group)).astype(np.int8)
    if not floats:
        return Drawn(x, w, None, group, win, False)
    bias = rng.integers(-9, 9, filters * group).astype(np.float32) if has_bias else None
    return Drawn((x % 16).astype(np.float32), (w % 16).astype(np.float32), bias, group, win, dice.random() < 0.3)


def by_numpy(drawn: Drawn) -> np.ndarray:
    """The sums in float64."""
    x, w = drawn.x.astype(np.float64), drawn.w.astype(np.float64)
    return tap_by_tap(x, w, 0 if drawn.bias is None else drawn.bias, drawn.group, drawn.win)


def may_be_called(drawn: Drawn) -> bool:
    """Whether programs may call the library for it on this processor: with short vectors it may end the process."""
    return drawn.group == 1 or drawn.x.dtype != np.float32 or ordered_weights.has_long_vectors()


def by_library(drawn: Drawn) -> list[np.ndarray]:
    """Results of two calls: wrong sums change with what lies in memory."""
    group, win = drawn.group, drawn.win

    def called(x: jax.Array, w: jax.Array, *bias: jax.Array) -> jax.Array:
        if drawn.x.dtype == np.float32:
            return onednn.correlation_of_floats(x, w, *bias, group=group, win=win, stored=drawn.stored)
        return onednn.correlation(x, w, group=group, win=win)

    jitted = jax.jit(called)
    operands = [a for a in (drawn.x, drawn.w, drawn.bias) if a is not None]
    with staying():
        return [np.asarray(jitted(*operands)) for _ in range(2)]


def start() -> Handler:
    """Handler for a worker process: maps the number of a case to its outcome as text."""

    def handle(seed: int, _phase: Phase) -> str:
        drawn = draw(seed)
        if not may_be_called(drawn):
            return "not called"
        wanted = by_numpy(drawn)
        if all(np.array_equal(found, wanted) for found in by_library(drawn)):
            return "equal"
        return f"differs: {drawn.x.dtype} {drawn.x.shape} by {drawn.w.shape}, {drawn.group} groups, {drawn.win}"

    return handle
