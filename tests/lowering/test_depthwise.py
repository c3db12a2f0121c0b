"""Convolutions of one kernel per channel, channels last: values and both orders of derivatives are XLA's own."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import pytest
from jax import lax

import popart_jax as popart
from popart_jax.lowering.kernels.depthwise_last import depthwise
from popart_jax.ops.windows import window

CASES = {
    "usual": ((2, 9, 8, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "strides": ((2, 9, 8, 6), (3, 2), (2, 3), (1, 0, 1, 1), (1, 1)),
    "dilations": ((2, 9, 8, 6), (3, 3), (1, 1), (2, 1, 2, 3), (2, 2)),
    "padding beyond the window": ((2, 5, 4, 3), (2, 2), (1, 1), (3, 0, 2, 1), (1, 1)),
    "no padding": ((1, 5, 6, 3), (3, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "one dimension": ((2, 9, 4), (5,), (1,), (2, 2), (1,)),
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


AS_USERS_HAVE_IT = {  # tests/conftest.py compiles quickly
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}


@pytest.mark.parametrize(("pool", "count"), [(9, 1), (5, 5), (3, 7)])
def test_every_maximum_behind_a_convolution_has_its_gradient(pool, count):
    """A maximum must equal one of the elements that it is compared with, also where XLA computes these again."""
    rng = np.random.default_rng(1)
    text = f"c = Conv<group=8, strides=[2]>(x, w, b) r = LeakyRelu(c) y = MaxPool<kernel_shape=[{pool}]>(r)"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g(float[2,8,20] x) => (float[2,8,{count}] y) {{ {text} }}'
    )
    x, w, b, g = (rng.normal(size=s).astype(np.float32) for s in ((2, 8, 20), (8, 1, 3), (8,), (2, 8, count)))
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in {"w": w, "b": b}.items())
    fn, params = popart.to_jax(proto)
    lowered = jax.jit(jax.grad(lambda p: (fn(p, x)["y"] * g).sum())).lower(params)
    found = lowered.compile(AS_USERS_HAVE_IT)(params)

    taps = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 3, 2)[:, :, ::2]
    sums = np.einsum("ncjk,ck->ncj", taps, w[:, 0]) + b[:, None]
    windows = np.lib.stride_tricks.sliding_window_view(sums, pool, 2)
    at = windows.argmax(-1) + np.arange(count)
    of_sums = g * np.where(windows.max(-1) < 0, np.float32(0.01), 1)
    read = np.take_along_axis(taps, at[..., None], 2)
    np.testing.assert_allclose(found["w"][:, 0], np.einsum("ncj,ncjk->ck", of_sums, read), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["b"], of_sums.sum((0, 2)), rtol=1e-4, atol=1e-4)
