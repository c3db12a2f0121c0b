"""Windows without the elements that meet nothing but padding give the same correlation, and the same gradients."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from popart_jax.lowering.kernels.correlation import correlation
from popart_jax.lowering.kernels.met_elements import trimmed
from popart_jax.ops.kernels import staying
from popart_jax.ops.windows import Window, window

from ..platforms import ON_CPUS

SIZES, KERNELS, STEPS, APART, PADS = (1, 2, 3, 5), (1, 2, 3, 6), (1, 2, 3), (1, 2, 3), (0, 1, 2, 5)


def summed(x: np.ndarray, w: np.ndarray, win: Window) -> np.ndarray:
    """The correlation in one dimension, place by place."""
    (low, high), (step,), (apart,) = win.pads[0], win.strides, win.dilations
    data = np.pad(x, ((0, 0), (low, high), (0, 0)))
    return np.stack(
        [sum(data[:, p * step + i * apart] @ w[i] for i in range(win.kernel[0])) for p in range(win.positions[0])],
        1,
    )


def test_all_small_windows_of_one_dimension() -> None:
    rng, changed = np.random.default_rng(0), 0
    for n, k, step, apart, low, high in itertools.product(SIZES, KERNELS, STEPS, APART, PADS, PADS):
        if n + low + high < (k - 1) * apart + 1:
            continue
        win = window((n,), (k,), (step,), (apart,), (low, high), "NOTSET")
        x, w = rng.normal(size=(2, n, 3)), rng.normal(size=(k, 3, 2))
        data, weights, small = trimmed(x, w, win)
        assert weights.shape == (*small.kernel, 3, 2)
        assert small.positions == win.positions
        assert min(small.pads[0]) >= 0
        reach = (small.kernel[0] - 1) * apart + 1
        assert (data.shape[1] + sum(small.pads[0]) - reach) // step + 1 == win.positions[0]
        np.testing.assert_allclose(summed(data, weights, small), summed(x, w, win), atol=1e-12)
        changed += small.kernel != win.kernel
    assert changed > 400


@ON_CPUS
@pytest.mark.parametrize(
    ("data", "weights", "group", "strides", "dilations", "kept"),
    [
        ((2, 1, 1, 32), (3, 3, 32, 48), 1, (1, 1), (1, 1), (1, 1)),
        ((2, 1, 4, 32), (5, 5, 32, 16), 1, (1, 1), (1, 1), (1, 5)),
        ((2, 4, 4, 16), (11, 11, 8, 16), 2, (2, 2), (2, 2), (3, 3)),
        ((2, 2, 2, 16), (7, 7, 1, 16), 16, (1, 1), (1, 1), (3, 3)),
        ((1, 3, 2, 4, 8), (7, 3, 3, 8, 8), 1, (1, 1, 1), (1, 1, 1), (5, 3, 3)),
    ],
)
@pytest.mark.parametrize("stays", [False, True])
def test_values_and_gradients(
    data: Any, weights: Any, group: int, strides: Any, dilations: Any, kept: Any, stays: bool
) -> None:
    pads = [(k - 1) * d // 2 for k, d in zip(weights[:-2], dilations, strict=True)] * 2
    win = window(data[1:-1], weights[:-2], strides, dilations, pads, "NOTSET")
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in (data, weights))
    assert trimmed(x, w, win)[2].kernel == kept
    spatial = "DHW"[5 - len(data) :]
    names = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")

    def theirs(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, win.pads, None, dilations, names, feature_group_count=group, precision="highest"
        )

    y, pull = jax.vjp(theirs, x, w)
    g = rng.normal(size=y.shape).astype(np.float32)
    with staying(stays):
        found, ours = jax.jit(lambda x, w: (lambda y, pull: (y, pull(g)))(*jax.vjp(
            lambda x, w: correlation(x, w, None, group, win), x, w)))(x, w)  # fmt: skip
    for mine, wanted in zip((found, *ours), (y, *pull(g)), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)
