"""Convolutions of few channels, few places and single places: values and both orders of derivatives are XLA's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import lax

from popart_jax import to_jax
from popart_jax.lowering.kernels import few_channels, few_places, pointwise
from popart_jax.lowering.kernels.correlation import correlation
from popart_jax.ops.kernels import staying
from popart_jax.ops.windows import window

from ..platforms import ON_CPUS

CASES = {
    "one channel": ((2, 9, 8, 1), (3, 3), 5, (1, 1), (1, 1, 1, 1), (1, 1)),
    "three channels, strides": ((2, 9, 8, 3), (3, 2), 4, (2, 3), (1, 0, 1, 1), (1, 1)),
    "dilations": ((2, 9, 8, 2), (3, 3), 3, (1, 1), (2, 1, 2, 3), (2, 2)),
    "padding beyond the window": ((2, 5, 4, 1), (2, 2), 1, (1, 1), (3, 0, 2, 1), (1, 1)),
    "one dimension": ((2, 9, 4), (5,), 6, (1,), (2, 2), (1,)),
    "three dimensions": ((1, 4, 5, 4, 2), (2, 3, 2), 3, (1, 2, 1), (0, 1, 1, 1, 1, 0), (1, 1, 1)),
    "single places": ((2, 5, 4, 6), (1, 1), 3, (1, 1), (0, 0, 0, 0), (1, 1)),
    "no places": ((0, 5, 4, 6), (1, 1), 3, (1, 1), (0, 0, 0, 0), (1, 1)),
}


def drawn(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    data, kernel, filters, strides, pads, dilations = CASES[name]
    spatial = "DHW"[-len(kernel) :]
    names = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    win = window(data[1:-1], kernel, strides, dilations, pads, "NOTSET")

    def theirs(x, w):
        return lax.conv_general_dilated(x, w, strides, win.pads, None, dilations, names)

    def as_rows(x, w):
        return few_places.correlation(x, w, win)

    def ours(x, w):
        if set(kernel) == {1}:
            return pointwise._by_xla(x, w.reshape(w.shape[-2:]))
        return few_channels.correlation(x, w, win)

    with jax.enable_x64(True):
        x, w = drawn(data), drawn((*kernel, data[-1], filters), 1)
        y, pull = jax.vjp(jax.jit(theirs), x, w)
        found, our_pull = jax.vjp(jax.jit(ours), x, w)
        g, dots = drawn(y.shape, 2), (drawn(x.shape, 3), drawn(w.shape, 4))
        pairs = [(found, y), *zip(our_pull(g), pull(g), strict=True)]
        rows, pull_rows = jax.vjp(jax.jit(as_rows), x, w)
        pairs += [(rows, y), *zip(pull_rows(g), pull(g), strict=True)]
        of_rows, *both = (jax.jvp(jax.jit(f), (x, w), dots)[1] for f in (as_rows, ours, theirs))
        pairs.append((of_rows, both[0]))
        slopes = [jax.jit(lambda at, f=f: jax.vjp(f, *at)[1](g)) for f in (ours, theirs)]
        second = [jax.tree.leaves(jax.jvp(slope, ((x, w),), (dots,))[1]) for slope in slopes]
        for mine, wanted in [*pairs, both, *zip(*second, strict=True)]:
            np.testing.assert_allclose(mine, wanted, rtol=1e-11, atol=1e-11)


@ON_CPUS
@pytest.mark.parametrize(
    ("data", "weights", "few"),
    [
        ((1, 28, 28, 1), (5, 5, 1, 32), True),
        ((2, 24, 24, 3), (3, 3, 3, 28), True),
        ((8, 64, 64, 1), (3, 3, 1, 32), False),  # results leave the cache
        ((1, 9, 9, 6), (3, 3, 6, 2), False),  # too many terms
    ],
)
def test_which_layers_are_sums_of_shifted_data(data, weights, few):
    win = window(data[1:-1], weights[:2], (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET")
    x, w = (jnp.asarray(drawn(shape), jnp.float32) for shape in (data, weights))
    assert few_channels.suits(x, w, 1, win) == few
    text = jax.jit(lambda x, w: correlation(x, w, None, 1, win)).lower(x, w).as_text()
    assert ("convolution" in text) != few


@ON_CPUS
@pytest.mark.parametrize(
    ("data", "weights", "few"),
    [((1, 7, 7, 192), (3, 3, 192, 128), True), ((2, 7, 7, 192), (3, 3, 192, 128), False)],
)
def test_which_layers_are_one_product(data, weights, few):
    win = window(data[1:-1], weights[:2], (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET")
    x, w = (jnp.asarray(drawn(shape), jnp.float32) for shape in (data, weights))
    for known in (True, False):
        with staying(known):
            text = jax.jit(lambda *args: correlation(*args, None, 1, win)).lower(x, w).as_text()
        assert ("dot_general" in text) == few


@ON_CPUS
def test_one_kernel_writes_the_rows_of_few_places():
    win = window((4, 4), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET")
    x, w = (jnp.asarray(drawn(shape), jnp.float32) for shape in ((1, 4, 4, 192), (3, 3, 192, 128)))
    text = jax.jit(lambda x, w: few_places.correlation(x, w, win)).lower(x, w).compile().as_text()
    assert text.count(" gather(") == 1
    assert " slice(" not in text  # one for each tap would be a kernel each


@ON_CPUS
@pytest.mark.parametrize(("size", "alone"), [(12, True), (48, False)])
def test_threads_do_not_share_a_small_layer(size, alone):
    win = window((size, size), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET")
    x, w = (jnp.asarray(drawn(shape), jnp.float32) for shape in ((1, size, size, 1), (3, 3, 1, 48)))
    text = jax.jit(lambda x, w: few_channels.correlation(x, w, win)).lower(x, w).compile().as_text()
    assert ("outer_dimension_partitions" not in text) >= alone  # one processor shares nothing
    assert ("dynamic-update-slice" in text) == alone


@ON_CPUS
def test_a_pool_does_not_compute_such_a_layer_again():
    text = """<ir_version: 8, opset_import: ["": 17]> g(float[1,1,12,12] x) => (float[1,4,6,6] y)
        <float[4,1,3,3] w = {%s}> { a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a)
        y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(b) }"""
    fn, params = to_jax(onnx.parser.parse_model(text % ",".join(map(str, drawn(36).round(3)))))
    x = drawn((1, 1, 12, 12)).astype(np.float32)
    compiled = jax.jit(fn).lower(params, x).compile().as_text()
    assert " call(" in compiled[compiled.index("ENTRY") :]


@ON_CPUS
@pytest.mark.parametrize(
    ("places", "channels", "filters", "kind", "form"),
    [
        (3136, 320, 8, "float32", "convolution"),
        (49, 320, 1280, "float32", "dot_general"),  # few places with many weights
        (196, 256, 1024, "float32", "dot_general"),  # a large product
        (800, 512, 255, "float32", "convolution"),  # the same with an odd number of filters
        (3136, 8, 4, "bfloat16", "dot_general"),
    ],
)
def test_large_products_are_left_to_the_library(places, channels, filters, kind, form):
    x, w = jnp.ones((1, places, channels), kind), jnp.ones((channels, filters), kind)
    assert form in jax.jit(pointwise.product).lower(x, w).as_text()
