"""Values of operators against NumPy and torch."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl import ops

from .run import forward, rng

torch = pytest.importorskip("torch")
F = torch.nn.functional


def data(*shape, low=-2.0, high=2.0, seed=0):
    return rng(seed).uniform(low, high, shape).astype(np.float32)


def t(x):
    return torch.tensor(x)


X, Y = data(3, 4), data(3, 4, seed=1)
POSITIVE = data(3, 4, low=0.1, high=3)

UNARY = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "cos": np.cos, "sin": np.sin, "tanh": np.tanh, "exp": np.exp,
    "sign": np.sign, "negate": np.negative, "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: F.gelu(t(x), approximate="tanh").numpy(), "geluerf": lambda x: F.gelu(t(x)).numpy(),
    "swish": lambda x: F.silu(t(x)).numpy(), "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "identity": lambda x: x, "detach": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name):
    np.testing.assert_allclose(forward(getattr(ops, name), X), UNARY[name](X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "fn"), [("sqrt", np.sqrt), ("log", np.log), ("log2", np.log2)])
def test_unary_of_positive(name, fn):
    np.testing.assert_allclose(forward(getattr(ops, name), POSITIVE), fn(POSITIVE), rtol=1e-5, atol=1e-6)


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fmod": np.fmod,
          "equal": np.equal, "greater": np.greater, "maximum": np.maximum}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BINARY))
@pytest.mark.parametrize("other", [Y, Y[0], Y[:, :1]], ids=["same", "row", "column"])
def test_binary(name, other):
    np.testing.assert_allclose(forward(getattr(ops, name), X, other), BINARY[name](X, other), rtol=1e-5)


def test_integer_division_truncates():
    a, b = np.array([-7, 7, -8], np.int32), np.array([2, -2, 3], np.int32)
    np.testing.assert_array_equal(forward(ops.div, a, b), [-3, -3, -2])


def test_pow_and_its_constant():
    np.testing.assert_allclose(forward(lambda x: x**2, X), X**2, rtol=1e-5)
    np.testing.assert_allclose(forward(lambda x: 2.0**x, X), 2.0**X, rtol=1e-5)


LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or}


@pytest.mark.parametrize("name", sorted(LOGICAL))
def test_logical(name):
    a, b = X > 0, (Y > 0).astype(np.float32)
    np.testing.assert_array_equal(forward(getattr(ops, name), a, b), LOGICAL[name](a, b))


def test_logical_not_and_where():
    np.testing.assert_array_equal(forward(ops.logical_not, X > 0), X <= 0)
    np.testing.assert_array_equal(forward(ops.where, X > 0, X, Y), np.where(X > 0, X, Y))


REDUCTIONS = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
    "l1": lambda x, **k: np.sum(np.abs(x), **k), "l2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "sumsquare": lambda x, **k: np.sum(x * x, **k), "logsumexp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "logsum": lambda x, **k: np.log(np.sum(x, **k)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims):
    x = data(2, 3, 4, low=0.1)
    wanted = REDUCTIONS[name](x, axis=axis, keepdims=keepdims)
    got = forward(lambda a: getattr(ops, name)(a, axis, keepdims), x)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_no_axes_reduce_each_element_by_itself(name):
    x = data(2, 3, low=0.1)
    wanted = REDUCTIONS[name](x, axis=())
    np.testing.assert_allclose(forward(lambda a: getattr(ops, name)(a, [], True), x), wanted, rtol=1e-5, atol=1e-6)


def test_median_is_the_lower_one():
    x = data(4, 6)
    np.testing.assert_array_equal(forward(lambda a: ops.median(a, 1), x), torch.median(t(x), 1).values.numpy())


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_extremes(name):
    got = forward(lambda a: getattr(ops, name)(a, -1, True), X)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got[:, 0], getattr(np, name)(X, -1))


def test_topk_smallest_and_largest():
    values, indices = forward(lambda a: ops.topk(a, 2, 1, True, True), X)
    want = torch.topk(t(X), 2, 1)
    np.testing.assert_array_equal(values, want.values.numpy())
    np.testing.assert_array_equal(indices, want.indices.numpy())
    values, _ = forward(lambda a: ops.topk(a, 2, 1, False, True), X)
    np.testing.assert_array_equal(values, torch.topk(t(X), 2, 1, largest=False).values.numpy())


def test_cumsum_histogram_lamb_square():
    np.testing.assert_allclose(forward(lambda a: ops.cumsum(a, 1), X), np.cumsum(X, 1), rtol=1e-5)
    levels = [-2.0, -1.0, 0.0, 1.0]
    got = forward(lambda a: ops.histogram(a, levels, False), X)
    inside = X[(levels[0] <= X) & (levels[-1] >= X)]
    np.testing.assert_array_equal(got, np.histogram(inside, levels)[0])
    np.testing.assert_allclose(forward(ops.lamb_square, X), np.sum(X * X), rtol=1e-5)


def test_shapes():
    x = data(2, 3, 4)
    np.testing.assert_array_equal(forward(lambda a: a.reshape((4, -1)), x), x.reshape(4, -1))
    np.testing.assert_array_equal(forward(lambda a: a.T, x), x.T)
    np.testing.assert_array_equal(forward(lambda a: a.transpose((1, 0, 2)), x), x.transpose(1, 0, 2))
    np.testing.assert_array_equal(forward(lambda a: a.flatten(), x), x.ravel())
    np.testing.assert_array_equal(forward(lambda a: ops.squeeze(a[:, 0:1]), x), x[:, 0])
    np.testing.assert_array_equal(forward(lambda a: ops.concat([a, a], 1), x), np.concatenate([x, x], 1))
    for got, want in zip(forward(lambda a: ops.split(a, [1, 3], 2), x), np.split(x, [1], 2), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(forward(lambda a: ops.subsample(a, [1, 2]), x), x[:, ::2])
    np.testing.assert_array_equal(forward(lambda a: a[0:2].diag(), data(5, 3)), np.diag(data(5, 3)[:2]))


@pytest.mark.parametrize(
    "key", [0, -1, slice(None), slice(1, None), (slice(None), 2), (1, slice(0, 3, 2)), slice(None, None, -1)], ids=str
)
def test_static_indexing(key):
    x = data(3, 5, 2)
    np.testing.assert_array_equal(forward(lambda a: a[key], x), x[key])


def test_dynamic_indexing():
    index = np.array([2, 0], np.int32)
    np.testing.assert_array_equal(forward(lambda a, i: a[i], X, index), X[index])
    mask = X > 0
    np.testing.assert_array_equal(forward(lambda a, m: a[m], X, mask), np.where(mask, X, 0))
    outside = np.array([1, -1, 9], np.int32)
    want = np.stack([X[1], np.zeros(4), np.zeros(4)])
    np.testing.assert_array_equal(forward(lambda a, i: ops.gather(a, i, 0, zero_OOR=True), X, outside), want)
    np.testing.assert_array_equal(forward(lambda a, i: ops.tied_gather(a, i), X, index), X[index])
    batched = np.stack([X, Y])
    picks = np.array([[0, 2], [1, 1]], np.int32)
    want = np.stack([X[picks[0]], Y[picks[1]]])
    np.testing.assert_array_equal(forward(lambda a, i: ops.groupedgather(a, i, 1, 2), batched, picks), want)


def test_scatter_and_reduce():
    index = np.array([[0, 1, 2, 0]], np.int32)
    want = t(X).scatter(0, t(index).long(), t(Y[:1])).numpy()
    np.testing.assert_array_equal(forward(lambda a, i, v: ops.scatter(a, i, v), X, index, Y[:1]), want)
    rows = np.array([0, 2, 0], np.int32)
    want = np.zeros((4, 4), np.float32)
    np.add.at(want, rows, X)
    got = forward(lambda a, i: ops.scatter_reduce(a, i, "sum", axis_size=4), X, rows)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    room = data(4, 6)
    block = room.copy()
    np.add.at(block[:, :4], rows, X)  # what lies beside the data stays
    got = forward(lambda a, i, v: ops.scatter_reduce(a, i, "sum", v), X, rows, room)
    np.testing.assert_allclose(got, block, rtol=1e-6)


def test_dynamic_slice_and_update():
    at = np.array([1], np.uint32)
    got = forward(lambda a, i: ops.dynamic_slice(a, i, [0], [1], True), X, at)
    np.testing.assert_array_equal(got, X[1:2])
    want = X.copy()
    want[1:2] = Y[:1]
    got = forward(lambda a, i, u: ops.dynamic_update(a, i, u, [0], [1], True), X, at, Y[:1])
    np.testing.assert_array_equal(got, want)


def test_onehot_and_cast():
    labels = np.array([1, 0, 2], np.int32)

    def hot(i):
        return ops.onehot(i, popxl.constant(np.int32(3)), popxl.constant(np.array([0.0, 1.0], np.float32)), 1)

    np.testing.assert_array_equal(forward(hot, labels), np.eye(3, dtype=np.float32)[labels])
    np.testing.assert_array_equal(forward(lambda a: ops.cast(a, popxl.int32), X), X.astype(np.int32))


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 2)), ((2, 3, 4), (4, 2)), ((4,), (4, 2)), ((2, 3, 4), (2, 4, 5))], ids=str
)
def test_matmul(shapes):
    a, b = data(*shapes[0]), data(*shapes[1], seed=1)
    np.testing.assert_allclose(forward(ops.matmul, a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_convolutions_and_pools():
    x, w = data(2, 4, 7, 6), data(6, 2, 3, 3, seed=1)
    got = forward(lambda a, b: ops.conv(a, b, (2, 1), (1, 0, 1, 0), groups=2), x, w)
    np.testing.assert_allclose(got, F.conv2d(t(x), t(w), stride=(2, 1), padding=(1, 0), groups=2), rtol=1e-4, atol=1e-5)
    w = data(4, 3, 3, 3, seed=2)
    got = forward(lambda a, b: ops.conv_transpose(a, b, (2, 2), (1, 1, 1, 1), output_padding=(1, 1)), x, w)
    want = F.conv_transpose2d(t(x), t(w), stride=2, padding=1, output_padding=1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(forward(lambda a: ops.max_pool(a, (2, 2), (2, 2)), x), F.max_pool2d(t(x), 2))
    np.testing.assert_allclose(
        forward(lambda a: ops.average_pool(a, (2, 2), (2, 2)), x), F.avg_pool2d(t(x), 2), rtol=1e-5
    )


def test_normalisations_and_softmax():
    x, scale, bias = data(3, 6, 5), data(6, seed=1), data(6, seed=2)
    got = forward(lambda a, s, b: ops.group_norm(a, s, b, 2), x, scale, bias)
    np.testing.assert_allclose(got, F.group_norm(t(x), 2, t(scale), t(bias)), rtol=1e-4, atol=1e-5)
    rows = data(4, 6)
    got = forward(ops.layer_norm, rows, scale, bias)
    np.testing.assert_allclose(got, F.layer_norm(t(rows), (6,), t(scale), t(bias)), rtol=1e-4, atol=1e-5)
    mean, var = data(6, seed=3), data(6, low=0.5, seed=4)
    got = forward(ops.batch_norm_inference, x, scale, bias, mean, var)
    np.testing.assert_allclose(got, F.batch_norm(t(x), t(mean), t(var), t(scale), t(bias)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(forward(lambda a: ops.softmax(a, -1), rows), F.softmax(t(rows), -1), rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", [None, 1])
def test_losses(reduction, ignore):
    logits, labels = data(5, 4), np.array([0, 1, 3, 1, 2], np.int32)
    x = t(logits).requires_grad_()
    keywords = {} if ignore is None else {"ignore_index": ignore}
    want = F.cross_entropy(x, t(labels).long(), reduction=reduction, **keywords)
    want.sum().backward()

    def loss(a, i):
        p = ops.softmax(a, -1)
        return (ops.nll_loss(p, i, ignore, reduction), *ops.nll_loss_with_softmax_grad(p, i, 1.0, ignore, reduction))

    plain, fused, dx = forward(loss, logits, labels)
    np.testing.assert_allclose(plain, want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fused, want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dx, x.grad, rtol=1e-4, atol=1e-5)


def test_interpolate_and_roi_align():
    x = data(1, 2, 4, 4)
    got = forward(lambda a: ops.interpolate(a, (1.0, 1.0, 2.0, 2.0), "linear"), x)
    np.testing.assert_allclose(got, F.interpolate(t(x), scale_factor=2, mode="bilinear"), rtol=1e-4, atol=1e-5)
    rois = np.array([[0.0, 0.0, 3.0, 3.0]], np.float32)
    got = forward(lambda a, r, b: ops.roi_align(a, r, b, (3, 3), 1.0, 2), x, rois, np.zeros(1, np.int32))
    assert got.shape == (1, 2, 3, 3)


def test_sizes_and_coordinates_of_interpolate_are_in_single_precision():
    """29 of 100 by 0.29, as the product is 29 in float32 (28 in float64); half a pixel of 5 by 0.2 lies at 2."""
    assert forward(lambda a: ops.interpolate(a, (1.0, 0.29), "linear"), data(1, 100)).shape == (1, 29)
    x = data(1, 5)
    floor = forward(lambda a: ops.interpolate(a, (1.0, 0.2), "nearest", "floor", "half_pixel"), x)
    np.testing.assert_array_equal(floor, x[:, 2:3])
    for mode in ("nearest", "linear", "cubic"):  # of one element in float32, the first
        one = forward(lambda a, m=mode: ops.interpolate(a, (1.0, 0.2), m, "floor", "pytorch_half_pixel"), x)
        np.testing.assert_array_equal(one, x[:, :1])


def test_clip_increment_scaled_add():
    np.testing.assert_array_equal(forward(lambda a: ops.clip(a, -1, 1), X), np.clip(X, -1, 1))
    whole = np.array([-3, 0, 7], np.int32)
    for bounds in ({}, {"min": -1}, {"max": 2.7}):
        np.testing.assert_array_equal(
            forward(lambda a, b=bounds: ops.clip(a, **b), whole),
            np.clip(whole, bounds.get("min"), bounds.get("max") and 2),
        )
    np.testing.assert_allclose(forward(lambda a: ops.increment_mod(a, 1, 3), np.float32(2.5).reshape(1)), [0.5])
    np.testing.assert_allclose(forward(lambda a, b: ops.scaled_add(a, b, 2.0, -1.0), X, Y), 2 * X - Y, rtol=1e-6)


def test_pools_over_spread_elements_with_a_border():
    torch = pytest.importorskip("torch")
    x = rng(3).normal(size=(1, 2, 4, 4)).astype(np.float32)
    spread = np.full((1, 2, 7, 7), -np.inf, np.float32)
    spread[:, :, ::2, ::2] = x
    found = forward(lambda t: ops.max_pool(t, (3, 3), in_dilations=(2, 2), out_pads=(1, 0, 0, 2)), x)
    np.testing.assert_array_equal(found[:, :, 1:, :-2], torch.max_pool2d(torch.tensor(spread), 3, 1))
    assert not found[:, :, 0].any()
    assert not found[:, :, :, -2:].any()
    there = np.isfinite(spread[:, :, :, ::2]).astype(np.float32)
    kept = np.where(there > 0, spread[:, :, :, ::2], 0)
    mean = lambda a: torch.nn.functional.avg_pool2d(torch.tensor(a), 2, 1).numpy()  # noqa: E731
    found = forward(lambda t: ops.average_pool(t, (2, 2), in_dilations=(2, 1)), x)
    np.testing.assert_allclose(found, mean(kept) / mean(there), rtol=1e-5)


def test_the_sign_of_nan_is_zero():
    x = np.array([-2.0, 0.0, 3.0, np.nan], np.float32)
    np.testing.assert_array_equal(forward(ops.sign, x), [-1, 0, 1, 0])


def test_dynamic_windows_take_negative_axes():
    x, at = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1], np.uint32)

    def both(t, index):
        part = ops.dynamic_slice(t, index, [-1], [2], True)
        return part, ops.dynamic_update(t, index, -part, [-1], [2], True)

    part, updated = forward(both, x, at)
    np.testing.assert_array_equal(part, x[:, 1:])
    np.testing.assert_array_equal(updated, np.concatenate([x[:, :1], -x[:, 1:]], 1))


def test_positions_may_be_numbers_of_numpy():
    np.testing.assert_array_equal(forward(lambda t: t[np.int64(1)], X), X[1])
    np.testing.assert_array_equal(forward(lambda t: ops.slice(t, np.int64(1)), X), X[1:])
