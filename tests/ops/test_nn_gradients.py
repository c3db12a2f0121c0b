"""Gradients of the neural network operators against central differences, in float64."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ..platforms import ON_CPUS
from .single import check_gradient, function, run

rng = np.random.default_rng(11)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


def spread(*shape):
    """Values at least 0.1 apart, so that maxima are unique and smooth."""
    return (rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1).astype(np.float32)


X, IMAGE, LABELS = f32(2, 4, 6, 5), spread(1, 2, 6, 5), rng.integers(0, 4, (3, 2))
CELLS = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(op, directions=1, **attributes):
    gates, size, hidden = CELLS[op], 3, 4
    shapes = [(5, 2, size), (directions, gates * hidden, size), (directions, gates * hidden, hidden)]
    inputs = [f32(*s) for s in shapes] + [f32(directions, 2 * gates * hidden), np.array([5, 3], np.int32)]
    inputs += [f32(directions, 2, hidden) for _ in range(2 if op == "LSTM" else 1)]
    return op, inputs, 3 if op == "LSTM" else 2, {"hidden_size": hidden, **attributes}


CASES = {
    "conv": ("Conv", [X, f32(3, 4, 3, 2), f32(3)], 1, {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    "conv groups": ("Conv", [X, f32(6, 2, 3, 3)], 1, {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "conv depthwise": ("Conv", [X, f32(8, 1, 3, 3), f32(8)], 1, {"group": 4, "pads": [1] * 4, "strides": [2, 1]}),
    "conv transpose": ("ConvTranspose", [X, f32(4, 3, 3, 3), f32(6)], 1, {"group": 2, "strides": [2, 2]}),
    "causal conv": ("CausalConvWithState", [f32(2, 3, 7), f32(3, 1, 3), f32(3)], 2, {"activation": "silu"}),
    "deform conv": (
        "DeformConv", [f32(1, 2, 5, 5), f32(2, 2, 2, 2), 0.3 * f32(1, 8, 4, 4) + 0.2, f32(2), f32(1, 4, 4, 4)], 1, {},
    ),
    "max pool": ("MaxPool", [IMAGE], 1, {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 0]}),
    "max pool dilated": ("MaxPool", [IMAGE], 1, {"kernel_shape": [2, 2], "dilations": [2, 2]}),
    "average pool": ("AveragePool", [IMAGE], 1, {"kernel_shape": [3, 3], "pads": [1] * 4, "ceil_mode": 1}),
    "lp pool": ("LpPool", [IMAGE + 1], 1, {"kernel_shape": [2, 2], "p": 3}),
    "global max": ("GlobalMaxPool", [IMAGE], 1, {}),
    "global lp": ("GlobalLpPool", [IMAGE], 1, {"p": 2}),
    "batch norm trains": ("BatchNormalization", [X, f32(4), f32(4), f32(4), abs(f32(4))], 1, {"training_mode": 1}),
    "batch norm": ("BatchNormalization", [X, f32(4), f32(4), f32(4), abs(f32(4)) + 0.5], 1, {}),
    "instance norm": ("InstanceNormalization", [X, f32(4), f32(4)], 1, {}),
    "group norm": ("GroupNormalization", [X, f32(4), f32(4)], 1, {"num_groups": 2}),
    "layer norm": ("LayerNormalization", [X, f32(6, 5), f32(6, 5)], 3, {"axis": 2}),
    "rms norm": ("RMSNormalization", [X, f32(5)], 1, {}),
    "lp norm": ("LpNormalization", [X], 1, {"p": 2, "axis": 1}),
    "mean variance": ("MeanVarianceNormalization", [X], 1, {}),
    "lrn": ("LRN", [X], 1, {"size": 3, "alpha": 0.5}),
    "lstm": recurrent("LSTM", 2, direction="bidirectional"),
    "gru": recurrent("GRU", 2, direction="bidirectional"),
    "gru linear": recurrent("GRU", linear_before_reset=1, direction="reverse"),
    "rnn": recurrent("RNN", 1),
    "attention": ("Attention", [f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6)], 1, {"softcap": 2.0}),
    "rotary": ("RotaryEmbedding", [f32(2, 2, 3, 8), f32(2, 3, 4), f32(2, 3, 4)], 1, {}),
    "resize linear": ("Resize", [X, None, np.array([1, 1, 1.7, 0.6], np.float32)], 1, {"mode": "linear"}),
    "resize cubic": ("Resize", [X, None, np.array([1, 1, 0.5, 2], np.float32)], 1, {"mode": "cubic", "antialias": 1}),
    "grid sample": ("GridSample", [f32(1, 2, 4, 5), 0.8 * f32(1, 3, 3, 2).clip(-1, 1)], 1, {"mode": "cubic"}),
    "affine grid": ("AffineGrid", [f32(2, 2, 3), np.array([2, 1, 3, 4], np.int64)], 1, {}),
    "roi align": (
        "RoiAlign",
        [f32(2, 2, 6, 6), np.array([[0.6, 0.7, 4.1, 4.6], [1.2, 0.3, 5.4, 3.3]], np.float32), np.array([0, 1])], 1,
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
    ),
    "nll": ("NegativeLogLikelihoodLoss", [f32(3, 4, 2), LABELS, abs(f32(4))], 1, {"ignore_index": 1}),
    "cross entropy": ("SoftmaxCrossEntropyLoss", [f32(3, 4, 2), LABELS], 1, {}),
    "col2im": ("Col2Im", [f32(1, 8, 9), np.array([4, 4]), np.array([2, 2])], 1, {}),
    "linear attention": (
        "LinearAttention", [f32(1, 4, 8), f32(1, 4, 4), f32(1, 4, 6), None, -abs(f32(1, 4, 2)), f32(1, 4, 2)], 2,
        {"q_num_heads": 4, "kv_num_heads": 2},
    ),
}  # fmt: skip
STATIC = {"resize linear": [2], "resize cubic": [2], "affine grid": [1], "col2im": [1, 2]}


NO_GRADIENT_ELSEWHERE = ("conv transpose",)  # docs/limitations.md


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=ON_CPUS if name in NO_GRADIENT_ELSEWHERE else ()) for name in CASES]
)
def test_gradient(name):
    op, inputs, n_out, attributes = CASES[name]
    static = STATIC.get(name, [])
    versions = {"AffineGrid": 20, "RMSNormalization": 23, "Attention": 23, "RotaryEmbedding": 23, "LinearAttention": 27,
                "CausalConvWithState": 27}  # fmt: skip
    wide = [x.astype(np.float64) if x is not None and x.dtype == np.float32 and i not in static else x
            for i, x in enumerate(inputs)]  # fmt: skip
    fn = function(op, wide, n_out, static=static, at=versions.get(op, 22), **attributes)
    which = [i for i, x in enumerate(wide) if x is not None and x.dtype == np.float64]
    single = name in ("linear attention", "layer norm")  # parts of them are float32 by definition
    loose = {"rtol": 1e-2, "eps": 1e-3} if single else {"rtol": 1e-3} if name in ("roi align", "deform conv") else {}
    check_gradient(fn, *wide, which=which, **loose)


@pytest.mark.parametrize(("offset", "error"), [(0, 1e-6), (10, 1e-5), (1000, 1e-3)])
def test_batch_norm_of_data_far_from_zero(offset, error):
    x, scale, bias, g = f32(8, 4, 14, 14) + offset, f32(4), f32(4), f32(8, 4, 14, 14)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    norm = function("BatchNormalization", [x, scale, bias, mean, var])
    _, back = jax.vjp(lambda x, scale, bias: norm(x, scale, bias, mean, var)[0], x, scale, bias)
    centred = x.astype(np.float64) - mean.reshape(-1, 1, 1)
    inverse = 1 / np.sqrt(var.astype(np.float64) + 1e-5)
    expected = g * (scale * inverse).reshape(-1, 1, 1), (g * centred).sum((0, 2, 3)) * inverse, g.sum((0, 2, 3))
    for found, right in zip(back(g), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=error * np.abs(right).max())


def test_what_does_not_move_adds_nothing_to_the_tangent_of_a_batch_norm():
    x, scale, bias, mean, var = X.copy(), f32(4), f32(4), f32(4), abs(f32(4)) + 0.5
    x[0, 1, 2, 3] = np.inf
    norm = function("BatchNormalization", [x, scale, bias, mean, var])
    _, tangent = jax.jvp(lambda x: norm(x, scale, bias, mean, var)[0], (x,), (np.ones_like(x),))
    factor = scale / np.sqrt(var + np.float32(1e-5))
    np.testing.assert_allclose(tangent, np.broadcast_to(factor.reshape(-1, 1, 1), x.shape), rtol=1e-6)


def test_every_tied_maximum_gets_the_full_gradient():
    x = np.ones((1, 1, 2, 4), np.float32)
    for op, attributes in (("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("GlobalMaxPool", {})):
        fn = function(op, [x], **attributes)
        np.testing.assert_array_equal(jax.grad(lambda v, fn=fn: fn(v)[0].sum())(x), np.ones_like(x))


@pytest.mark.parametrize("op", ["LpNormalization", "GlobalLpPool", "MeanVarianceNormalization"])
def test_gradients_at_zero_are_finite(op):
    x = np.zeros((1, 2, 3, 3), np.float32)
    fn = function(op, [x])
    assert np.isfinite(jax.grad(lambda v: fn(v)[0].sum())(x)).all()


def test_second_derivative_of_max_pool():
    x = spread(1, 1, 4, 4)
    fn = function("MaxPool", [x], kernel_shape=[2, 2])
    square = lambda v: (fn(v)[0] ** 2).sum()  # noqa: E731
    hessian = np.asarray(jax.jit(jax.jacrev(jax.grad(square)))(x)).reshape(16, 16)
    jacobian = np.asarray(jax.jit(jax.jacrev(lambda v: fn(v)[0]))(x)).reshape(9, 16)
    np.testing.assert_allclose(hessian, 2 * jacobian.T @ jacobian, atol=1e-5)


def test_dropout_masks_output_and_gradient_alike():
    x = f32(64, 32)
    settings = {"training": True, "key": jax.random.key(5)}
    fn = function("Dropout", [x], 2, settings=settings, at=10, ratio=0.3)
    y, mask = (np.asarray(v) for v in fn(x))
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(0.7), 0), rtol=1e-6)
    assert 0.62 < mask.mean() < 0.78
    grad = np.asarray(jax.grad(lambda v: fn(v)[0].sum())(x))
    np.testing.assert_allclose(grad, mask / np.float32(0.7), rtol=1e-6)
    still, kept = run("Dropout", [x], 2, at=10, ratio=0.3)
    np.testing.assert_array_equal(still, x)
    assert np.asarray(kept).all()
