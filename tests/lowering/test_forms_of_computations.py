"""The forms that platforms have of computations against what the operators say, in float64, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import popart_jax.lowering.kernels  # noqa: F401 - has the forms
from popart_jax.ops.arrays import lowest
from popart_jax.ops.convolution import convolve
from popart_jax.ops.kernels import IPU, Computation, platform, tracing_for
from popart_jax.ops.normalization import group_normalise, instance_norm
from popart_jax.ops.pooling import fold_windows, max_pool_values, share_gradient
from popart_jax.ops.recurrent import lstm_scan
from popart_jax.ops.recurrent_scan import Projected
from popart_jax.ops.resize import Axis, Rule, blend, weights
from popart_jax.ops.windows import Window, window

from ..platforms import ON_CPUS

RANDOM = np.random.default_rng(0)
WINDOWS = {
    "padded": window((9, 8), (3, 3), (2, 2), (1, 1), (1, 0, 0, 1)),
    "tiles": window((9, 8), (3, 2), (3, 2), (1, 1), ()),
    "dilated": window((9, 8), (2, 3), (1, 2), (3, 1), (0, 1, 0, 1)),
    "large": window((9, 8), (6, 5), (1, 1), (1, 1), ()),
    "large in steps": window((9, 8), (5, 4), (2, 3), (1, 2), (2, 1, 1, 2), "NOTSET", 1),
    "very large": window((9, 8), (33, 2), (1, 1), (1, 1), (14, 0, 14, 0)),
}
CONVOLUTIONS = {
    "one kernel a channel": ((2, 3, 9, 8), (3, 1, 3, 2), (2, 1), ((1, 0), (0, 1)), (1, 2), 3),
    "two kernels a channel": ((2, 3, 9, 8), (6, 1, 3, 3), (1, 2), ((2, 2), (0, 0)), (1, 1), 3),
    "groups": ((2, 4, 9, 8), (6, 2, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 2),
    "cropped": ((2, 3, 9, 8), (3, 1, 3, 2), (1, 1), ((-1, 0), (0, 0)), (1, 1), 3),
}


def ways(computation: Computation[..., Any], call: Callable[[Callable[..., Any]], Callable[..., Any]], *given: Any):
    """What the platform's form and the plain one give, from one program."""
    return jax.jit(lambda *given: [call(fn)(*given) for fn in (computation, computation.plain)])(*given)


def same(computation: Computation[..., Any], call: Callable[[Callable[..., Any]], Callable[..., Any]], *given: Any):
    """Values and gradients of the platform's form and of the plain one."""
    shapes = jax.eval_shape(call(computation), *given)
    weights = jax.tree.map(lambda y: jnp.asarray(RANDOM.normal(size=y.shape)), shapes)

    def both(fn: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
        def results(weights: Any, *given: Any) -> tuple[Any, Any]:
            values, back = jax.vjp(call(fn), *given)
            return values, back(weights)

        return results

    form, plain = ways(computation, both, weights, *given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), form[0], plain[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), form[1], plain[1])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (3, 6, 5), (2, 6, 2, 3, 2), (4, 6)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(shape: tuple[int, ...], groups: int):
    x = jnp.asarray(RANDOM.normal(size=shape))
    scale, bias = (jnp.asarray(RANDOM.normal(size=shape[1])) for _ in range(2))
    same(group_normalise, lambda fn: lambda *operands: fn(*operands, groups, 1e-3), x, scale, bias)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_group_norm_of_special_values(special: float):
    x = jnp.asarray(RANDOM.normal(size=(2, 6, 3, 4))).at[1, 2, 0, 1].set(special)
    scale, bias = jnp.arange(1.0, 7.0), jnp.ones(6)
    both = ways(group_normalise, lambda fn: lambda *operands: fn(*operands, 3, 1e-3), x, scale, bias)
    for found, plain in zip(*both, strict=True):
        np.testing.assert_allclose(found, plain, rtol=1e-11, atol=1e-11)


def test_gradients_of_a_group_norm_share_their_sums():
    """Two sums over the data, whatever the gradients are for; the forward pass has two others."""
    x, scale = jnp.ones((2, 6, 3, 4)), jnp.ones(6)
    with tracing_for("cpu"):
        made = jax.make_jaxpr(lambda *a: jax.vjp(lambda *b: group_normalise(*b, 3, 1e-3)[0], *a)[1](x))(x, scale, scale)
    assert str(made).count("reduce_sum[axes=(2, 3)") == 4


def test_an_instance_norm_is_a_group_norm_of_each_channel():
    x, scale = jnp.ones((2, 6, 3, 4)), jnp.ones(6)
    with tracing_for("cpu"):
        made = jax.make_jaxpr(lambda *a: jax.vjp(instance_norm, *a)[1](x))(x, scale, scale)
    assert str(made).count("reduce_sum[axes=(2, 3)") == 4


@ON_CPUS
def test_kernels_of_a_residual_network_do_not_grow_with_its_layers():
    """XLA would compute the residual stream again from the first layer on, in a kernel of each later layer."""

    def largest(layers: int) -> int:
        def loss(x: jax.Array, ws: list[jax.Array]) -> jax.Array:
            for w in ws:
                x = group_normalise(x + jax.nn.relu(x @ w), jnp.full(6, 0.5), jnp.zeros(6), 1, 1e-5)[0]
            return (x * x).sum()

        ws = [jnp.ones((6, 6))] * layers
        with tracing_for("cpu"):
            text = jax.jit(jax.grad(loss, 1)).lower(jnp.ones((4, 6)), ws).compile().as_text()
        return max(body.count(" = ") for body in text.split("\n\n") if body.lstrip().startswith("%fused"))

    assert largest(2) == largest(5)


@pytest.mark.parametrize("name", WINDOWS)
def test_sums_of_windows(name: str):
    x = jnp.asarray(RANDOM.normal(size=(2, 3, 9, 8)))
    same(fold_windows, lambda fold: lambda x: fold(x, WINDOWS[name], 0.0, jnp.add, lax.add), x)


@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "pads", "ceil", "size"),
    [
        ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 0, (7, 8)),
        ((2, 3), (3, 2), (1, 1), (1, 0, 0, 2), 0, (6, 5)),
        ((3, 2), (2, 4), (2, 1), (2, 1, 3, 0), 0, (6, 9)),
        ((2, 2), (2, 2), (1, 1), (0, 1, 0, 0), 1, (7, 7)),
        ((1, 1), (4, 2), (1, 1), (5, 0, 3, 0), 0, (3, 5)),
    ],
)
def test_maxima_of_strided_windows_over_the_edge(kernel, strides, dilations, pads, ceil, size):
    win = window(size, kernel, strides, dilations, pads, "NOTSET", ceil)
    x = jnp.asarray(RANDOM.normal(size=(2, 3, *size)))
    np.testing.assert_array_equal(
        *ways(fold_windows, lambda fold: lambda x: fold(x, win, -np.inf, jnp.maximum, lax.max), x)
    )


@pytest.mark.parametrize("special", [0.0, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", WINDOWS)
def test_maxima_of_windows(name: str, special: float):
    x = jnp.asarray(RANDOM.normal(size=(2, 3, 9, 8))).at[1, 2, 4, 4:6].set(special)
    given = (WINDOWS[name], lowest(x.dtype), jnp.maximum, lax.max)
    np.testing.assert_array_equal(*ways(fold_windows, lambda fold: lambda x: fold(x, *given), x))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("special", [0.0, -np.inf])
def test_the_first_of_equal_maxima_gets_the_gradient(name: str, special: float):
    win = WINDOWS[name]
    x = jnp.asarray(RANDOM.integers(0, 3, (2, 3, 9, 8)), jnp.float32).at[:, :, 2:5, 3:7].set(special)
    y = fold_windows(x, win, lowest(x.dtype), jnp.maximum, lax.max)
    g = jnp.asarray(RANDOM.normal(size=y.shape), jnp.float32)
    found = jax.jit(lambda x, y, g: share_gradient(x, y, g, win, False))(x, y, g)
    wanted = jax.jit(lambda x, y, g: share_gradient.plain(x, y, g, win, False))(x, y, g)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@ON_CPUS
def test_gradients_of_strided_maxima_are_not_dilated():
    """An array with zeros between the gradients for each tap takes four times as long."""
    x = jnp.ones((1, 1, 16, 16))
    win = window((16, 16), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1))
    jaxpr = jax.make_jaxpr(jax.grad(lambda x: max_pool_values(x, win, True).sum()))(x).jaxpr
    paddings = [eqn.params["padding_config"] for eqn in jaxpr.eqns if eqn.primitive.name == "pad"]
    assert paddings
    assert not any(between for one in paddings for _, _, between in one)


@pytest.mark.parametrize("name", WINDOWS)
def test_ties_get_the_whole_gradient_each(name: str):
    win: Window = WINDOWS[name]
    x = jnp.asarray(RANDOM.integers(0, 3, (2, 3, 9, 8)), float)
    y = fold_windows(x, win, lowest(x.dtype), jnp.maximum, lax.max)
    g = jnp.asarray(RANDOM.normal(size=y.shape))
    found, plain = ways(share_gradient, lambda share: lambda x, y, g: share(x, y, g, win, True), x, y, g)
    np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-12)
    x, y, g, expected = *map(np.asarray, (x, y, g)), np.zeros(x.shape)
    for place in np.ndindex(*y.shape):  # every element of the window that equals its maximum
        for tap in np.ndindex(*win.kernel):
            at = [
                p * s + t * d - lo
                for p, s, t, d, (lo, _) in zip(place[2:], win.strides, tap, win.dilations, win.pads, strict=True)
            ]
            inside = all(0 <= a < n for a, n in zip(at, x.shape[2:], strict=True))
            if inside and x[(*place[:2], *at)] == y[place]:
                expected[(*place[:2], *at)] += g[place]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str):
    data, weights, *rest = CONVOLUTIONS[name]
    x, w = (jnp.asarray(RANDOM.normal(size=shape)) for shape in (data, weights))
    same(convolve, lambda form: lambda x, w: form(x, w, *rest), x, w)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_lstm(reverse: bool, masked: bool, exact: bool, biased: bool):
    steps, batch, size = 5, 3, 4
    xs, r = (jnp.asarray(RANDOM.normal(size=shape)) for shape in ((steps, batch, 4 * size), (4 * size, size)))
    state = tuple(jnp.asarray(RANDOM.normal(size=(batch, size))) for _ in range(2))
    mask = jnp.arange(steps)[:, None, None] < jnp.asarray([5, 2, 3])[None, :, None] if masked else None
    projected = Projected(xs, jnp.asarray(RANDOM.normal(size=4 * size)) if biased else None)
    same(lstm_scan, lambda scan: lambda xs, r, state: scan(reverse, exact, xs, r, state, mask), projected, r, state)


def test_the_ipu_sees_the_operators():
    """What is priced are convolutions and windowed reductions, whatever runs fast here."""
    x, w = jnp.ones((2, 3, 9, 8)), jnp.ones((3, 1, 3, 2))
    with tracing_for(IPU):
        assert platform() == IPU
        found = str(jax.make_jaxpr(lambda x: convolve(x, w, (1, 1), ((0, 0), (0, 0)), (1, 1), 3))(x))
        pooled = str(jax.make_jaxpr(lambda x: fold_windows(x, WINDOWS["padded"], 0.0, jnp.add, lax.add))(x))
    assert platform() == jax.default_backend()
    assert "feature_group_count=3" in found
    assert "reduce_window_sum" in pooled


def test_dilated_maxima_are_priced_with_their_gradient():
    """JAX has no gradient of a dilated reduction of windows."""
    x = jnp.asarray(RANDOM.normal(size=(1, 1, 9, 8)))
    with tracing_for(IPU):
        found = jax.grad(lambda x: max_pool_values(x, WINDOWS["dilated"], True).sum())(x)
    np.testing.assert_allclose(found, jax.grad(lambda x: max_pool_values(x, WINDOWS["dilated"], True).sum())(x))


INTERPOLATIONS = [
    ("linear", "half_pixel", 6, 13), ("linear", "align_corners", 7, 3), ("linear", "asymmetric", 1, 4),
    ("cubic", "half_pixel", 6, 9), ("cubic, antialias", "half_pixel", 24, 9),
]  # fmt: skip


def interpolation(mode: str, coordinates: str, size: int, out: int) -> np.ndarray:
    kind, _, smooth = mode.partition(", ")
    return weights(Rule(kind, coordinates, antialias=bool(smooth)), Axis(1, size, out, out / size, (0.0, 1.0)))


@pytest.mark.parametrize("how", INTERPOLATIONS)
def test_interpolation(how: tuple[str, str, int, int]) -> None:
    matrix = interpolation(*how)
    with jax.enable_x64(True):
        x = jnp.asarray(RANDOM.normal(size=(2, how[2], 3)))
        same(blend, lambda fn: lambda x: fn(x, matrix, 1), x)
        ahead, back = (turn(lambda x: blend(x, matrix, 1))(x) for turn in (jax.jacfwd, jax.jacrev))
        np.testing.assert_allclose(ahead, back, atol=1e-12)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("how", INTERPOLATIONS)
def test_interpolation_keeps_to_its_taps(how: tuple[str, str, int, int], value: float) -> None:
    matrix = interpolation(*how)
    x = np.ones((1, how[2], 1), np.float32)
    x[0, how[2] // 2] = value
    found = np.asarray(jax.jit(lambda x: blend(x, matrix, 1))(x))[0, :, 0]
    reached = matrix[:, how[2] // 2] != 0
    if how[0] == "linear":
        np.testing.assert_array_equal(found[reached], np.full(reached.sum(), value, np.float32))
    assert reached.any()
    assert not np.isfinite(found[reached]).any()
    np.testing.assert_allclose(found[~reached], 1, rtol=1e-6)
