"""Weight gradients of convolutions as products: those of XLA's convolution, also in parts and differentiated again."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from popart_jax.lowering.kernels import weight_products
from popart_jax.lowering.kernels.correlation import correlation
from popart_jax.ops.kernels import staying
from popart_jax.ops.windows import window

from .sums import needs_library

CASES = {
    "windows": ((4, 15, 14, 6), (3, 3, 6, 64), (1, 1), (1, 1, 1, 1), (1, 1)),
    "strides and dilations": ((8, 24, 23, 5), (2, 3, 5, 80), (2, 1), (0, 3, 1, 1), (2, 3)),
    "more filters than data under a window": ((4, 14, 14, 5), (3, 2, 5, 70), (1, 1), (1, 1, 1, 0), (1, 1)),
    "few filters, dilated": ((2, 15, 14, 6), (3, 2, 6, 16), (1, 1), (2, 1, 3, 0), (2, 1)),
    "few filters, strided": ((1, 16, 15, 24), (3, 3, 24, 7), (2, 3), (1, 0, 1, 2), (1, 2)),
    "one place": ((2, 40, 17, 24), (1, 1, 24, 40), (1, 1), (0, 0, 0, 0), (1, 1)),
    "one place of a sound, strided": ((2, 900, 40), (1, 40, 32), (2,), (0, 0), (1,)),
}


def both(case: str, monkeypatch: pytest.MonkeyPatch, most: int = 1 << 30):
    """Our correlation and XLA's, with operands and a gradient of the result."""
    needs_library()
    data, weights, strides, pads, dilations = CASES[case]
    win = window(data[1:-1], weights[:-2], strides, dilations, pads, "NOTSET")
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in (data, weights))
    monkeypatch.setattr(weight_products, "_LEAST", 0)
    monkeypatch.setattr(weight_products, "_MOST", most)
    assert weight_products.suits(x, w, 1, win)
    names = (f"N{'HW'[: x.ndim - 2]}C", f"{'HW'[: x.ndim - 2]}IO", f"N{'HW'[: x.ndim - 2]}C")

    def ours(x, w):
        return correlation(x, w, None, 1, win)

    def theirs(x, w):
        return lax.conv_general_dilated(x, w, strides, win.pads, None, dilations, names, precision="highest")

    return ours, theirs, x, w, rng.normal(size=(data[0], *win.positions, weights[-1])).astype(np.float32)


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("case", CASES)
def test_weight_gradients_are_those_of_the_convolution(case: str, monkeypatch: pytest.MonkeyPatch):
    ours, theirs, x, w, g = both(case, monkeypatch)
    with staying():
        lowered = jax.jit(lambda x, w: jax.vjp(ours, x, w)[1](g)[1]).lower(x, w)
    assert "__onednn$matmul" in lowered.as_text()
    near(lowered.compile()(x, w), jax.vjp(theirs, x, w)[1](g)[1])


def test_images_that_are_too_many_at_a_time_come_in_parts(monkeypatch: pytest.MonkeyPatch):
    ours, theirs, x, w, g = both("windows", monkeypatch, most=15 * 14 * 9 * 6 * 2)
    with staying():
        found = jax.jit(lambda x, w: jax.vjp(ours, x, w)[1](g)[1])(x, w)
    near(found, jax.vjp(theirs, x, w)[1](g)[1])


@pytest.mark.parametrize("outer", ["forward", "backward"])
def test_second_derivatives(outer: str, monkeypatch: pytest.MonkeyPatch):
    ours, theirs, x, w, _ = both("windows", monkeypatch)
    found = []
    for function in (ours, theirs):

        def slope(x, function=function):
            return jax.grad(lambda w: (function(x, w) ** 2).mean())(w)

        with staying():
            if outer == "forward":
                found.append(jax.jit(lambda x, slope=slope: jax.jvp(slope, (x,), (x,))[1])(x))
            else:
                found.append(jax.jit(jax.grad(lambda x, slope=slope: (slope(x) * w).sum()))(x))
    near(*found)


def test_batched_by_vmap(monkeypatch: pytest.MonkeyPatch):
    ours, theirs, x, w, g = both("windows", monkeypatch)
    several = np.stack([x, -2 * x])
    with staying():
        found = jax.jit(jax.vmap(lambda x: jax.vjp(lambda w: ours(x, w), w)[1](g)[0]))(several)
    near(found, jax.vmap(lambda x: jax.vjp(lambda w: theirs(x, w), w)[1](g)[0])(several))
