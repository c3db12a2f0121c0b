"""Convolutions by oneDNN in float32: values and gradients are those of NumPy in float64, special values stay."""

from __future__ import annotations

import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import popart_jax
from popart_jax._compat.jax import compilation_cache
from popart_jax.lowering.kernels import onednn, ordered_weights
from popart_jax.lowering.kernels.correlation import CORRELATION, correlation, suits_library
from popart_jax.ops.kernels import library_called, staying, tracing_for
from popart_jax.ops.windows import window

from ..platforms import ON_CPUS
from .sums import needs_library, tap_by_tap, taps

CASES = {
    "usual": ((2, 30, 29, 32), (3, 3, 32, 24), 1, (1, 1), (1, 1, 1, 1), (1, 1)),
    "strides and one-sided padding": ((3, 60, 59, 19), (3, 2, 19, 40), 1, (2, 3), (0, 1, 2, 0), (1, 1)),
    "dilations": ((5, 28, 28, 16), (3, 3, 16, 16), 1, (1, 1), (2, 3, 2, 1), (2, 3)),
    "padding beyond the window": ((2, 60, 60, 24), (2, 2, 24, 24), 1, (1, 1), (3, 0, 2, 1), (1, 1)),
    "window larger than the data": ((36, 2, 3, 64), (5, 5, 64, 48), 1, (1, 1), (2, 2, 2, 2), (1, 1)),
    "few filters": ((16, 16, 16, 64), (7, 7, 64, 2), 1, (2, 2), (3, 3, 3, 3), (1, 1)),
    "an image": ((2, 48, 47, 3), (3, 3, 3, 28), 1, (1, 1), (1, 1, 0, 1), (1, 1)),
    "one place": ((4, 56, 56, 24), (1, 1, 24, 60), 1, (1, 1), (0, 0, 0, 0), (1, 1)),
    "one place, strided": ((4, 80, 79, 24), (1, 1, 24, 60), 1, (1, 2), (0, 0, 0, 0), (1, 1)),
    "few groups": ((2, 28, 28, 64), (3, 3, 32, 48), 2, (1, 1), (1, 1, 1, 1), (1, 1)),
    "odd groups": ((2, 40, 40, 35), (3, 3, 7, 50), 5, (1, 1), (1, 1, 1, 1), (1, 1)),
    "groups of places, strided": ((4, 80, 79, 32), (1, 1, 4, 48), 8, (1, 2), (0, 0, 0, 0), (1, 1)),
    "by channel": ((2, 44, 43, 100), (5, 5, 1, 100), 100, (1, 1), (2, 2, 2, 2), (1, 1)),
    "by channel, strided and dilated": ((4, 56, 57, 72), (5, 3, 1, 72), 72, (2, 1), (2, 1, 1, 0), (1, 2)),
    "one dimension": ((8, 333, 40), (9, 40, 48), 1, (1,), (4, 3), (1,)),
    "sound": ((2, 9000, 1), (475, 1, 160), 1, (211,), (17, 458), (1,)),
    "sound as an image of one row": ((2, 1, 9000, 1), (1, 475, 1, 160), 1, (1, 211), (0, 17, 0, 458), (1, 1)),
    "volume": ((1, 12, 11, 13, 16), (3, 3, 2, 16, 16), 1, (1, 1, 1), (1, 1, 0, 1, 1, 1), (1, 1, 1)),
    "volume in groups": ((1, 12, 12, 12, 16), (3, 3, 3, 4, 64), 4, (1, 1, 1), (1,) * 6, (1, 1, 1)),
}


def may_be_the_librarys(group: int) -> bool:
    return group == 1 or ordered_weights.has_long_vectors()


def of(case: str):
    data, weights, group, strides, pads, dilations = CASES[case]
    return data, weights, group, window(data[1:-1], weights[:-2], strides, dilations, pads, "NOTSET")


def gradients_tap_by_tap(x, w, g, group, win):
    g = g.reshape(*g.shape[:-1], group, -1)
    padded, of_weights = np.pad(x * 0, ((0, 0), *win.pads, (0, 0))), np.zeros_like(w)
    for place, cut, met, part in taps(x, w, group, win):
        of_weights[place] = np.einsum("...gc,...go->cgo", met, g, optimize=True).reshape(w[place].shape)
        padded[cut] += np.einsum("...go,cgo->...gc", g, part, optimize=True).reshape(*met.shape[:-2], -1)
    inner = [slice(low, low + n) for (low, _), n in zip(win.pads, x.shape[1:-1], strict=True)]
    return padded[:, *inner], of_weights


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    needs_library()
    biased = len(case) % 2 == 0
    data, weights, group, win = of(case)
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in (data, weights, weights[-1:]))

    def ours(x, w, b):
        return correlation(x, w, b if biased else None, group, win)

    wide = [v.astype(np.float64) for v in (x, w, b * biased)]
    y = tap_by_tap(*wide, group, win)
    g = rng.normal(size=y.shape)
    ahead = 2 * y - wide[2]  # of a product, with the operands themselves as directions
    wanted = (*gradients_tap_by_tap(*wide[:2], g, group, win), biased * g.sum(tuple(range(g.ndim - 1))))
    with staying():
        found, our_pull = jax.vjp(jax.jit(ours), x, w, b)
        pushed = jax.jvp(jax.jit(ours), (x, w, b), (x, w, b))[1]
        gradients = our_pull(g.astype(np.float32))
        assert library_called() == ("sound" not in case and may_be_the_librarys(group))
    for mine, expected in zip((found, pushed, *gradients), (y, ahead, *wanted), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=2e-6 * np.abs(expected).max(initial=1))


@pytest.mark.parametrize("case", ["usual", "few groups", "by channel"])
def test_infinities_and_nan_stay_where_they_are(case):
    needs_library()
    data, weights, group, win = of(case)
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=s).astype(np.float32) for s in (data, weights))
    x[0, 3, 4, 1], x[0, 20, 20, -1], x[1, 9, 9, 0] = np.nan, np.inf, -np.inf
    with staying(False):
        wanted = np.asarray(jax.jit(lambda x, w: correlation(x, w, None, group, win))(x, w))
    with staying():
        found = np.asarray(jax.jit(lambda x, w: correlation(x, w, None, group, win))(x, w))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("order", ["forward over backward", "backward twice"])
def test_second_derivatives_through_a_loop(order):
    """Where JAX drops hand-written rules of what it has differentiated once."""
    needs_library()
    data, weights, group, win = of("by channel")
    rng = np.random.default_rng(2)
    x, w = (jnp.asarray(rng.normal(size=s), np.float32) for s in ((2, *data), weights))

    def total(w):
        b = w[0, 0, 0]
        return lax.scan(lambda s, one: (s + (correlation(one, w, b, group, win) ** 2).mean(), None), 0.0, x)[0]

    def found(stays):
        slope = jax.grad(lambda w: total(w))  # traced anew each time
        with staying(stays):
            if order == "forward over backward":
                return jax.jit(lambda w: jax.jvp(slope, (w,), (w,))[1])(w)
            return jax.jit(jax.grad(lambda w: (slope(w) ** 2).sum()))(w)

    wanted = found(False)
    np.testing.assert_allclose(found(True), wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("data", "weights", "strides", "as_product"),
    [
        ((2, 9000, 1), (475, 1, 160), (211,), True),
        ((2, 1, 9000, 1), (1, 475, 1, 160), (1, 211), True),
        ((2, 3, 9000, 1), (1, 475, 1, 160), (1, 211), True),  # rows of an image, each by itself
        ((2, 3, 9000, 1), (2, 475, 1, 160), (1, 211), False),
        ((2, 9000, 1), (475, 1, 160), (21,), False),  # each number in 23 windows
        ((2, 9000, 2), (475, 2, 160), (211,), False),
    ],
)
def test_long_windows_over_sound_are_products(data, weights, strides, as_product) -> None:
    needs_library()
    win = window(data[1:-1], weights[:-2], strides, [1] * len(strides), [0] * 2 * len(strides), "NOTSET")
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in (data, weights))
    with staying():
        text = jax.jit(lambda x, w: correlation(x, w, None, 1, win)).lower(x, w).as_text()
        y = jax.jit(lambda x, w: correlation(x, w, None, 1, win))(x, w)
    assert ("onednn" not in text) == as_product
    assert ("dot_general" in text) == as_product
    np.testing.assert_allclose(y, tap_by_tap(x.astype(float), w.astype(float), 0.0, 1, win), rtol=1e-4, atol=1e-3)


def test_what_the_library_is_not_called_for():
    def called(platform: str, data: tuple[int, ...], kind: type, stays: bool) -> bool:
        x, w = jax.ShapeDtypeStruct(data, kind), jax.ShapeDtypeStruct((3, 3, 64, 64), kind)
        win = window(data[1:-1], (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET")
        with tracing_for(platform), staying(stays):
            return CORRELATION.name in str(jax.make_jaxpr(lambda x, w: correlation(x, w, None, 1, win))(x, w))

    needs_library()
    large, small = (8, 28, 28, 64), (1, 2, 2, 64)
    assert called("cpu", large, np.float32, True)
    assert not called("cpu", large, np.float32, False)
    assert not called("cpu", small, np.float32, True)
    assert not called("cpu", large, np.float16, True)
    assert not called("cuda", large, np.float32, True)
    assert not called("ipu", large, np.float32, True)


@pytest.mark.parametrize("case", CASES)
def test_gpus_take_convolutions_in_the_order_of_cudnn(case: str) -> None:
    """Pointwise ones are products, unless they have a stride: XLA can't merge these with the slice before."""
    data, weights, group, win = of(case)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in (data, weights))
    with tracing_for("gpu"):
        found = jax.make_jaxpr(lambda x, w: correlation(x, w, None, group, win))(x, w)
    names = {eqn.primitive.name for eqn in found.eqns if set(eqn.params.get("strides") or ()) != {1}}
    assert ("dot_general" in names) == (case == "one place")
    assert "slice" not in names
    (y,) = jaxpr_as_fun(found)(x, w)
    np.testing.assert_allclose(y, tap_by_tap(x.astype(float), w.astype(float), 0.0, group, win), rtol=1e-4, atol=1e-3)


def test_few_filters_a_group_are_left_to_xla():
    win = window((28, 28), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET")
    x = jax.ShapeDtypeStruct((8, 28, 28, 64), np.float32)
    assert suits_library(x, jax.ShapeDtypeStruct((3, 3, 64, 64), np.float32), 1, win)
    assert not suits_library(x, jax.ShapeDtypeStruct((3, 3, 64, 4), np.float32), 1, win)
    assert not suits_library(x, jax.ShapeDtypeStruct((3, 3, 1, 640), np.float32), 64, win)


@ON_CPUS
@pytest.mark.parametrize(
    ("data", "weights", "group", "by_library"),
    [
        ((1, 128, 15, 12), (7, 1, 12, 12), 1, True),  # few filters over many places
        ((1, 128, 15, 12), (7, 1, 12, 16), 1, False),
        ((1, 112, 112, 32), (1, 1, 32, 16), 1, False),  # fewer results than operands
        ((1, 112, 112, 16), (1, 1, 16, 32), 1, True),
        ((1, 80, 80, 144), (3, 3, 1, 144), 144, False),
        ((1, 80, 80, 144), (5, 5, 1, 144), 144, True),
        ((1, 200, 152, 64), (3, 3, 1, 64), 64, True),  # a large map
        ((1, 40, 40, 64), (1, 1, 4, 128), 16, True),  # groups of places
        ((1, 40, 40, 16), (1, 1, 4, 128), 4, False),
        ((1, 20, 20, 128), (1, 1, 16, 512), 8, False),
    ],
)
def test_which_layers_are_the_librarys(data, weights, group, by_library):
    pads = [k // 2 for k in weights[:2]] * 2
    win = window(data[1:-1], weights[:2], (1, 1), (1, 1), pads, "NOTSET")
    x, w = (jax.ShapeDtypeStruct(shape, np.float32) for shape in (data, weights))
    assert suits_library(x, w, group, win) == (by_library and may_be_the_librarys(group))


@pytest.mark.parametrize("training", [False, True])
def test_small_networks_do_not_try_the_library(monkeypatch, training):
    """The trial compiles a program of its own, 30 ms at the start of a process."""
    monkeypatch.setattr(onednn, "works", lambda: pytest.fail("the library was tried"))
    win = window((12, 12), (5, 5), (1, 1), (1, 1), (0,) * 4, "NOTSET")

    def network(x, w, v):
        return (correlation(x, w, None, 1, win).reshape(1, -1) @ v).sum()

    operands = np.ones((1, 12, 12, 20), "f"), np.ones((5, 5, 20, 50), "f"), np.ones((3200, 10), "f")
    with staying():
        found = jax.jit(jax.grad(network, (0, 1)) if training else network)(*operands)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


CHAIN = """<ir_version: 8, opset_import: ["": 17]> g(float[1,3,64,64] x) => (float[1,32,64,64] y) {
a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, v)
d = Sigmoid(c) e = Mul(c, d) f = Neg(e) y = Exp(f)
}"""


@pytest.mark.parametrize("cached", [False, True])
def test_calls_of_a_function_use_the_library_unless_their_program_may_be_written(cached, tmp_path):
    needs_library()
    model, rng = onnx.parser.parse_model(CHAIN), np.random.default_rng(0)
    for name, shape in (("w", (32, 3, 3, 3)), ("v", (32, 32, 3, 3))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape, scale=0.1).astype("f"), name))
    fn, params = popart_jax.to_jax(model)
    x = {"x": rng.normal(size=(1, 3, 64, 64)).astype(np.float32)}
    with staying(False):
        wanted = jax.jit(lambda *args: fn(*args))(params, x)["y"]
        slopes = jax.grad(lambda p: fn(p, x)["y"].sum())(params)
    with compilation_cache(str(tmp_path) if cached else None):
        called = LIBRARY in jax.jit(fn).lower(params, x).as_text()
        found = jax.jit(fn)(params, x)["y"], fn(params, x)["y"]
        found_slopes = jax.grad(lambda p: fn(p, x)["y"].sum())(params)
    assert called == (not cached)
    assert bool(list(tmp_path.iterdir())) == cached
    for y in found:
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    for name, slope in slopes.items():
        np.testing.assert_allclose(found_slopes[name], slope, rtol=1e-3, atol=1e-4 * np.abs(slope).max())


LIBRARY = "__onednn"


def layer(x, w, b):
    return correlation(x, w, b, 1, window(x.shape[1:-1], (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "NOTSET"))


def drawn(*sizes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.random.default_rng(i).normal(size=size).astype(np.float32) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("batched", [(0, None, None), (1, None, None), (None, 0, None), (0, 0, 1), (0, None, 0)])
def test_vmap(batched):
    needs_library()
    sizes = [list(size) for size in ((2, 28, 28, 32), (3, 3, 32, 24), (24,))]
    for size, at in zip(sizes, batched, strict=True):
        if at is not None:
            size.insert(at, 3)
    operands = drawn(*map(tuple, sizes))
    mapped = jax.jit(jax.vmap(layer, batched))
    text, found = mapped.lower(*operands).as_text(), mapped(*operands)
    data_alone = batched[1:] == (None, None)
    assert ("while" in text, text.count(LIBRARY)) == (False, int(data_alone)), text
    for i in range(3):
        one = [x if at is None else np.take(x, i, at) for x, at in zip(operands, batched, strict=True)]
        with staying(False):
            np.testing.assert_allclose(found[i], layer(*one), rtol=1e-4, atol=1e-4)


def test_exported_programs_and_those_of_several_devices_have_no_calls():
    needs_library()
    operands = drawn((2, 28, 28, 32), (3, 3, 32, 24), (24,))
    exported = jax.export.export(jax.jit(layer), platforms=["cpu", "cuda"])(*operands)
    read = jax.export.deserialize(exported.serialize())
    assert LIBRARY not in read.mlir_module()
    np.testing.assert_allclose(read.call(*operands), jax.jit(layer)(*operands), rtol=1e-4, atol=1e-4)

    def text(devices: int) -> str:
        mesh = jax.sharding.AbstractMesh((devices,), ("data",))
        halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        x, *rest = (jax.ShapeDtypeStruct(o.shape, o.dtype) for o in operands)
        traced = jax.jit(layer).trace(x.update(sharding=halves), *rest)
        return traced.lower(lowering_platforms=("cpu",)).as_text()

    assert LIBRARY not in text(2)
    assert LIBRARY in text(1)


def test_sizes_may_be_symbols():
    x, w, b = drawn((2, 28, 28, 32), (3, 3, 32, 24), (24,))
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(layer))(jax.ShapeDtypeStruct((n, *x.shape[1:]), x.dtype), w, b)
    np.testing.assert_allclose(exported.call(x, w, b), jax.jit(layer)(x, w, b), rtol=1e-4, atol=1e-4)


ROWS = {
    "frames": ((2, 400, 1), (256, 1, 96), (1, 160), (40,), (7, 30)),
    "frames of two channels": ((1, 99, 2), (48, 2, 50), (1, 9), (7,), (3, 9)),
    "stride beyond the window": ((2, 40, 24), (72, 24, 3), (1, 9), (5,), (2, 0)),
    "two dimensions": ((2, 12, 9, 30), (200, 30, 3, 2), (1, 4), (2, 3), (0, 1, 2, 1)),
    "one place": ((3, 1, 1, 64), (96, 64, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    "three dimensions": ((1, 3, 2, 3, 20), (90, 20, 2, 2, 2), (1, 1), (1, 1, 1), (1, 0, 0, 0, 1, 1)),
}


@ON_CPUS
@pytest.mark.parametrize("case", ROWS)
def test_few_places_are_products_with_weights_as_they_are_stored(case):
    data, stored, _, strides, pads = ROWS[case]
    win = window(data[1:-1], stored[2:], strides, [1] * len(strides), pads, "NOTSET")
    spatial = "DHW"[-len(strides) :]
    names = (f"N{spatial}C", f"OI{spatial}", f"N{spatial}C")
    x, w = drawn(data, stored)

    def ours(x, w):
        return correlation(x, w.transpose(*range(2, w.ndim), 1, 0), None, 1, win)

    def theirs(x, w):
        return lax.conv_general_dilated(x, w, win.strides, win.pads, None, win.dilations, names)

    def results(f, *args):
        y, pull = jax.vjp(f, *args)
        return [y, *pull(jnp.cos(y))]

    assert "convolution" not in jax.jit(ours).lower(x, w).as_text()
    with staying(False):
        turned = jax.jit(lambda *args: ours(*args)).lower(x, w).as_text()
    assert ("convolution" in turned) == (case != "frames")  # long windows over a sound are products in any case
    with jax.enable_x64(True):
        wanted = [np.asarray(v) for v in results(theirs, x.astype(np.float64), w.astype(np.float64))]
    for mine, expected in zip(jax.jit(lambda x, w: results(ours, x, w))(x, w), wanted, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-3)


@ON_CPUS
def test_a_network_that_is_jitted_turns_no_large_weights():
    """One thread would, at each call: those of dense layers, pointwise convolutions and recurrences with one row."""
    text = """<ir_version: 8, opset_import: ["": 17]> g(float[1,64,1,1] x) => (float[1,96] y, float[1,1,32] h) {
      a = Conv(x, w) f = Flatten(a) y = Gemm<transB=1>(f, v) s = Constant<value_ints = [1, 1, 96]>() t = Reshape(y, s)
      all, h = LSTM<hidden_size = 32>(t, i, r) }"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in (("w", (80, 64, 1, 1)), ("v", (96, 80)), ("i", (1, 128, 96)), ("r", (1, 128, 32))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape, scale=0.1).astype("f"), name))
    fn, params = popart_jax.to_jax(model)
    x = {"x": rng.normal(size=(1, 64, 1, 1)).astype(np.float32)}
    found = jax.jit(fn)(params, x)
    for name, y in zip(("y", "h"), ReferenceEvaluator(model).run(None, x), strict=True):
        np.testing.assert_allclose(found[name], np.asarray(y), rtol=1e-4, atol=1e-5)
    text = str(jax.jit(fn).lower(params, x).compile().as_text())
    turned = re.findall(r"= f32\[([\d,]+)\]\S* (?:copy|transpose)\(", text)
    assert all(np.prod([int(n) for n in sizes.split(",")]) < 4096 for sizes in turned), turned


def test_a_bias_of_another_length_is_an_error():
    """Not the end of the process, as in the library."""
    shapes = {"x": (2, 32, 30, 30), "w": (24, 32, 3, 3), "b": (25,)}
    text = ", ".join(f"float[{','.join(map(str, s))}] {n}" for n, s in shapes.items())
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({text}) => (float y) {{ y = Conv(x, w, b) }}'
    )
    fn, params = popart_jax.to_jax(proto)
    feeds = {n: np.ones(s, np.float32) for n, s in shapes.items()}
    for call in (fn, fn.jit):
        with pytest.raises(popart_jax.NodeError, match=r"bias of shape \[25\]; expected \[24\]"):
            call(params, feeds)
