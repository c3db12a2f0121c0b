"""Convolutions of one kernel per channel, channels last: values and both orders of derivatives are XLA's own."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from popart_jax.lowering.kernels.depthwise_last import depthwise
from popart_jax.ops.windows import window

CASES = {
    "usual": ((2, 9, 8, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "strides": ((2, 9, 8, 6), (3, 2), (2, 3), (1, 0, 1, 1), (1, 1)),
    "dilations": ((2, 9, 8, 6), (3, 3), (1, 1), (2, 1, 2, 3), (2, 2)),
    "padding beyond the window": ((2, 5, 4, 3), (2, 2), (1, 1), (3, 0, 2, 1), (1, 1)),
    "no padding": ((1, 5, 6, 3), (3, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "one dimension": ((2, 9, 4), (5,), (1,), (2, 2), (1,)),
    "rows left over": ((2, 19, 3, 4), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "rows left over, strides": ((1, 4, 77, 3), (2, 3), (1, 2), (1, 1, 0, 2), (1, 1)),
    "several sums of rows": ((1, 33, 5, 3), (3, 3), (1, 1), (1, 1, 0, 1), (1, 2)),
    "many window elements": ((1, 5, 15, 3), (3, 5), (1, 1), (1, 2, 1, 2), (1, 1)),
    "one element": ((2, 5, 4, 3), (1, 1), (2, 1), (0, 0, 0, 0), (1, 1)),
    "three dimensions": ((1, 4, 5, 4, 3), (2, 3, 2), (1, 2, 1), (0, 1, 1, 1, 1, 0), (1, 1, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    data, kernel, strides, pads, dilations = CASES[name]
    rank, channels, rng = len(kernel), data[-1], np.random.default_rng(0)
    spatial = "DHW"[-rank:]
    names = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    win = window(data[1:-1], kernel, strides, dilations, pads, "NOTSET")
    with jax.enable_x64(True):
        x, w = rng.normal(size=data), rng.normal(size=(*kernel, 1, channels))

        @jax.jit
        def theirs(x, w):
            return lax.conv_general_dilated(
                x, w, strides, win.pads, None, dilations, names, feature_group_count=channels
            )

        @jax.jit
        def ours(x, w):
            return depthwise(x, w, win)

        y, pull = jax.vjp(theirs, x, w)
        found, our_pull = jax.vjp(ours, x, w)
        np.testing.assert_allclose(found, y, rtol=1e-12, atol=1e-12)
        g, dots = rng.normal(size=y.shape), (rng.normal(size=x.shape), rng.normal(size=w.shape))
        for mine, wanted in zip(our_pull(g), pull(g), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-11, atol=1e-11)

        def slope(function, x, w):
            return jax.vjp(function, x, w)[1](g)

        wanted = jax.jit(lambda at, dots: jax.jvp(lambda *a: slope(theirs, *a), at, dots)[1])((x, w), dots)
        forward = jax.jit(lambda at, dots: jax.jvp(lambda *a: slope(ours, *a), at, dots)[1])((x, w), dots)
        backward = jax.jit(lambda at, dots: jax.vjp(lambda *a: slope(ours, *a), *at)[1](dots))((x, w), dots)
        for a, b, c in zip(wanted, forward, backward, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(c, a, rtol=1e-11, atol=1e-11)


def test_infinities_reach_the_gradients_that_they_belong_to():
    x = np.ones((1, 3, 3, 2), np.float32)
    x[0, 0, 0, 1] = np.inf
    w, win = np.ones((3, 3, 1, 2), np.float32), window((3, 3), (3, 3), (), (), (1, 1, 1, 1), "NOTSET")
    _, pull = jax.vjp(lambda w: depthwise(x, w, win), w)
    (found,) = pull(np.ones_like(x))
    assert np.isfinite(found[..., 0]).all()
    assert np.isinf(found[:2, :2, 0, 1]).all()
    assert np.isfinite(found[2, :, 0, 1]).all()


def test_weight_gradients_of_large_maps_are_exact():
    """Sums of a few rows, added up: one sum after the other over 100 x 100 places would lose three more bits."""
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=(1, 100, 100, 8)).astype(np.float32) for _ in range(2))
    w, win = np.ones((3, 3, 1, 8), np.float32), window((100, 100), (3, 3), (), (), (1, 1, 1, 1), "NOTSET")
    found = jax.jit(lambda x, g: jax.vjp(lambda w: depthwise(x, w, win), w)[1](g)[0])(x, g)
    rows = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = [[(rows[:, i : i + 100, j : j + 100] * g).sum((0, 1, 2)) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(found[:, :, 0], wanted, atol=1.5e-4)
