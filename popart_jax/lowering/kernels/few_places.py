"""Convolutions of few places with many weights, channels last, as one product of the data under each window.

oneDNN orders the weights at each call, which takes as long as the rest, and XLA's convolution multiplies narrow blocks.
In us, by XLA, oneDNN and this product, which YNNPACK computes (AMD EPYC, two cores, 25 layers): 7 x 7 x 512 to 512 by
3 x 3 1632, 897 and 807, 8 times 2 x 2 x 512 to 512 1518, 1611 and 684, 14 x 14 x 256 to 512 at stride 2 830, 490 and
418, 4 x 4 x 512 to 512 313, 561 and 260; with fewer weights, 6 x 6 x 96 to 128, 50, 84 and 65.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...ops.kernels import platform
from ...ops.windows import Window
from .depthwise_last import padded_taps

_MANY_WEIGHTS = 140_000


def suits(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether a convolution of x (N, ..., C), of known sizes, with w (..., C, M) is computed here: on the CPU."""
    several = group == 1 and math.prod(win.kernel) > 1 and w.size >= _MANY_WEIGHTS
    return several and platform() == "cpu" and has_few_places(x, w, win)


def has_few_places(x: Any, w: Any, win: Window) -> bool:
    """Whether there are at most half as many places as filters: windows in rows are less to write than weights."""
    return 2 * x.shape[0] * math.prod(win.positions) <= w.shape[-1]


def correlation(x: jax.Array, w: jax.Array, win: Window) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., C, M)."""
    rows = jnp.concatenate(padded_taps(x, win), axis=-1)
    return rows @ w.reshape(-1, w.shape[-1])
