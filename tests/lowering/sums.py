"""What tests of convolutions share: the sums by NumPy, and whether jaxlib has oneDNN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from popart_jax.lowering.kernels import onednn
from popart_jax.ops.kernels import staying
from popart_jax.ops.windows import Window


def needs_library() -> None:
    with staying():
        if not onednn.usable():
            pytest.skip("this jaxlib has no oneDNN")


def taps(x: np.ndarray, w: np.ndarray, group: int, win: Window) -> Iterator[tuple[Any, Any, np.ndarray, np.ndarray]]:
    """For each place of the window: what it meets, as a view of the padded data, and its weights, both by groups."""
    padded = np.pad(x, ((0, 0), *win.pads, (0, 0)))
    reach = [d * (k - 1) + 1 for k, d in zip(win.kernel, win.dilations, strict=True)]
    counts = [(n - r) // s + 1 for n, r, s in zip(padded.shape[1:-1], reach, win.strides, strict=True)]
    for place in np.ndindex(*win.kernel):
        starts = [p * d for p, d in zip(place, win.dilations, strict=True)]
        cut = [slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, win.strides, counts, strict=True)]
        met = padded[:, *cut]
        yield (
            place,
            (slice(None), *cut),
            met.reshape(*met.shape[:-1], group, -1),
            w[place].reshape(len(w[place]), group, -1),
        )


def tap_by_tap(x: np.ndarray, w: np.ndarray, b: Any, group: int, win: Window) -> np.ndarray:
    """The correlation of x (N, ..., C) with w (..., C/group, M), and a bias b."""
    total = sum(np.einsum("...gc,cgo->...go", met, part, optimize=True) for _, _, met, part in taps(x, w, group, win))
    return total.reshape(*total.shape[:-2], -1) + b
