"""ai.graphcore operators against NumPy, torch and finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax.errors import popart_exception
from popart_jax.ops.graphcore.shape import reduce_median
from popart_jax.ops.options import OperatorOptions

from .single import check_gradient, function, run

GC = {"domain": "ai.graphcore"}
rng = np.random.default_rng(0)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("reduction", ["Sum", "Mean", "None"])
@pytest.mark.parametrize("ignore", [None, 2])
def test_nll(reduction, ignore):
    probs, labels = softmax(f32(4, 3, 5)), rng.integers(0, 5, (4, 3)).astype(np.int32)
    extra = {} if ignore is None else {"ignoreIndex": ignore}
    (loss,) = run("Nll", [probs, labels], reduction=reduction, **extra, **GC)
    each = -np.log(np.take_along_axis(probs, labels[..., None], -1)[..., 0])
    kept = np.ones_like(labels, bool) if ignore is None else labels != ignore
    each = each * kept
    expected = {"Sum": each.sum(), "Mean": each.sum() / kept.sum(), "None": each}[reduction]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    check_gradient(lambda p: function("Nll", [p, labels], reduction=reduction, **extra, **GC)(p, labels), probs)


def test_nll_clamps_forward_and_backward_differently():
    probs, labels = np.array([[1e-8, 1.0]], np.float32), np.array([0], np.int32)
    fn = function("Nll", [probs, labels], reduction="Sum", **GC)
    np.testing.assert_allclose(fn(probs, labels)[0], -np.log(1e-7), rtol=1e-6)
    grad = jax.grad(lambda p: fn(p, labels)[0])(probs)
    np.testing.assert_allclose(grad, [[-1e8, 0]], rtol=1e-6)


def test_nll_label_outside_classes_counts_as_probability_zero():
    probs = np.full((2, 3), 1 / 3, np.float32)
    (loss,) = run("Nll", [probs, np.array([3, 0], np.int32)], reduction="None", **GC)
    np.testing.assert_allclose(loss, [-np.log(1e-7), np.log(3)], rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "text"),
    [(np.zeros((3,), np.int32), "The label tensor"), (np.zeros((2,), np.float32), "integer data type")],
)
def test_nll_rejects_labels(labels, text):
    with pytest.raises(popart_exception, match=text):
        run("Nll", [np.ones((2, 3), np.float32), labels], reduction="Sum", **GC)


def test_l1_and_identity_loss():
    x = f32(3, 4)
    np.testing.assert_allclose(
        run("L1", [x], reduction="Mean", **{"lambda": 0.5}, **GC)[0], 0.5 * abs(x).mean(), rtol=1e-6
    )
    np.testing.assert_allclose(run("IdentityLoss", [x], reduction="Sum", **GC)[0], x.sum(), rtol=1e-5)
    with pytest.raises(popart_exception, match="rank-0"):
        run("L1", [np.float32(1)], reduction="Sum", **{"lambda": 0.5}, **GC)


@pytest.mark.parametrize("reduction", ["Sum", "Mean", "None"])
def test_ctc_agrees_with_torch(reduction):
    torch = pytest.importorskip("torch")
    T, N, C, S = 9, 4, 5, 3
    lp = np.asarray(jax.nn.log_softmax(f32(T, N, C)))
    targets, lens, tlens = rng.integers(1, C, (N, S)), np.array([9, 7, 5, 3]), np.array([3, 2, 1, 0])
    operands = [lp, targets.astype(np.int32), lens.astype(np.int32), tlens.astype(np.int32)]
    fn = function("Ctc", operands, 1, reduction=reduction, blank=0, outDataType="UNDEFINED", **GC)
    x = torch.tensor(lp, requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        x, *map(torch.tensor, (targets, lens, tlens)), reduction=reduction.lower(), zero_infinity=False
    )
    loss.sum().backward()

    @jax.jit
    def both(p):
        (found, *_), pull = jax.vjp(lambda p: fn(p, *operands[1:]), p)
        return found, pull([jnp.ones_like(found)])[0]

    found, grad = both(lp)
    np.testing.assert_allclose(found, loss.detach(), rtol=1e-4)
    np.testing.assert_allclose(grad, x.grad, atol=1e-5)


def prefix_search(lp, steps, width, blank=0):
    beams = {(): (0.0, -np.inf)}
    for row in lp[:steps]:
        new = {}

        def add(prefix, b, n, new=new):
            old = new.get(prefix, (-np.inf, -np.inf))
            new[prefix] = (np.logaddexp(old[0], b), np.logaddexp(old[1], n))

        for prefix, (b, n) in beams.items():
            for s, p in enumerate(row):
                if s == blank:
                    add(prefix, np.logaddexp(b, n) + p, -np.inf)
                elif prefix and s == prefix[-1]:
                    add((*prefix, s), -np.inf, b + p)
                    add(prefix, -np.inf, n + p)
                else:
                    add((*prefix, s), -np.inf, np.logaddexp(b, n) + p)
        beams = dict(sorted(new.items(), key=lambda kv: -np.logaddexp(*kv[1]))[:width])
    return sorted(((np.logaddexp(*v), k) for k, v in beams.items()), reverse=True)


@pytest.mark.parametrize(("width", "paths"), [(3, 2), (20, 4)])
def test_ctc_beam_search(width, paths):
    lp, lens = np.asarray(jax.nn.log_softmax(2 * f32(8, 3, 5))), np.array([8, 6, 1], np.uint32)
    scores, sizes, labels = run("CtcBeamSearchDecoder", [lp, lens], 3, beam_width=width, top_paths=paths, blank=0, **GC)
    assert sizes.dtype == labels.dtype == np.uint32
    for n in range(3):
        for i, (score, prefix) in enumerate(prefix_search(lp[:, n].astype(np.float64), lens[n], width)[:paths]):
            np.testing.assert_allclose(scores[n, i], score, rtol=1e-4)
            assert tuple(np.asarray(labels[n, i, : sizes[n, i]])) == prefix


def test_dynamic_family():
    x, part = f32(5, 4), f32(2, 4)
    at, two = np.array([2], np.uint32), {"axes": [0], "sizes": [2], **GC}
    np.testing.assert_array_equal(run("DynamicSlice", [x, at], **two)[0], x[2:4])
    np.testing.assert_array_equal(run("DynamicSlice", [x, np.array([4], np.uint32)], **two)[0], x[[4, 0]])
    written, added, zeroed = x.copy(), x.copy(), x.copy()
    written[2:4], zeroed[2:4] = part, 0
    added[2:4] += part
    np.testing.assert_array_equal(run("DynamicUpdate", [x, at, part], **two)[0], written)
    np.testing.assert_array_equal(run("DynamicAdd", [x, at, part], **two)[0], added)
    np.testing.assert_array_equal(run("DynamicZero", [x, at], **two)[0], zeroed)
    one = {"axes": [1], "sizes": [1], **GC}
    np.testing.assert_array_equal(run("DynamicSlice", [x, at], **one)[0], x[:, 2:3])
    for op, args in {
        "DynamicSlice": (x,),
        "DynamicUpdate": (x, part),
        "DynamicAdd": (x, part),
        "DynamicZero": (x,),
    }.items():
        operands = [args[0], at, *args[1:]]
        check_gradient(lambda *a, op=op, o=operands: function(op, o, **two)(a[0], at, *a[1:]), *args)


def test_sequence_slice():
    src, dst = f32(6, 3), f32(5, 3)
    operands = [src, dst, *(np.array(v, np.uint32) for v in ([2, 1], [3, 0], [0, 4]))]
    expected = dst.copy()
    expected[0:2], expected[4] = src[3:5], src[0]
    np.testing.assert_array_equal(run("SequenceSlice", operands, **GC)[0], expected)
    expected[2:4] = 0
    np.testing.assert_array_equal(run("SequenceSlice", operands, zeroUnused=1, **GC)[0], expected)


@pytest.mark.parametrize("reduction", ["sum", "max", "min", "mul", "none"])
@pytest.mark.parametrize("with_start", [False, True])
@pytest.mark.parametrize("vector", [False, True])
def test_scatter_reduce(reduction, with_start, vector):
    src, start = f32(3, 6), f32(3, 5)
    index = rng.permutation(6).astype(np.int32) if reduction == "none" else rng.integers(0, 7, 6).astype(np.int32)
    index = index if vector else np.stack([np.roll(index, k) for k in range(3)])
    apply = {"sum": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply, "none": lambda a, b: b}[reduction]
    out = start.copy() if with_start else np.full((3, 5), np.nan, np.float32)
    for r in range(3):
        for c in range(6):
            k = index[c] if vector else index[r, c]
            if k < 5:
                fresh = np.isnan(out[r, k])
                out[r, k] = src[r, c] if fresh else apply(out[r, k], src[r, c])
    out = np.where(np.isnan(out), 1 if reduction == "mul" else 0, out)
    operands = [src, index, *([start] if with_start else [])]
    attributes = {"axis_size": 5, "axis": 1, "reduction": reduction, **GC}
    np.testing.assert_allclose(run("ScatterReduce", operands, **attributes)[0], out, rtol=1e-5)
    if reduction != "none":
        fn = function("ScatterReduce", operands, **attributes)
        check_gradient(lambda s, *a: fn(s, index, *a), src, *([start] if with_start else []))


def test_scatter_max_ties_get_the_full_gradient():
    src, index = np.array([1.0, 1.0, 0.5], np.float32), np.zeros(3, np.int32)
    fn = function("ScatterReduce", [src, index], axis_size=2, axis=0, reduction="max", **GC)
    np.testing.assert_array_equal(jax.grad(lambda s: fn(s, index)[0].sum())(src), [1, 1, 0])


def test_grouped_gather_and_scatter():
    data, index = f32(2, 5, 3), np.array([[0, 4], [2, 2]], np.int32)
    (y,) = run("GroupedGather", [data, index], axis=1, group_size=2, **GC)
    np.testing.assert_array_equal(y, np.stack([data[k][index[k]] for k in range(2)]))
    src = f32(2, 2, 3)
    (z,) = run("ScatterReduce", [src, index], axis=1, axis_size=5, group_size=2, reduction="sum", **GC)
    expected = np.zeros((2, 5, 3), np.float32)
    for k in range(2):
        np.add.at(expected[k], index[k], src[k])
    np.testing.assert_allclose(z, expected, rtol=1e-6)


@pytest.mark.parametrize("strided", [False, True])
def test_group_normalization(strided):
    x, gamma, beta = f32(2, 6, 3, 2), f32(6), f32(6)
    settings = {"options": OperatorOptions(strided_group_norm=strided)}
    y, mean, inverse = run("GroupNormalization", [x, gamma, beta], 3, num_groups=2, settings=settings, **GC)
    groups = [np.arange(6) % 2 == g if strided else np.arange(6) // 3 == g for g in range(2)]
    for n in range(2):
        for g, members in enumerate(groups):
            part = x[n, members]
            np.testing.assert_allclose(mean[2 * n + g], part.mean(), atol=1e-6)
            np.testing.assert_allclose(inverse[2 * n + g], 1 / np.sqrt(part.var() + 1e-5), rtol=1e-5)
            scaled = (part - part.mean()) / np.sqrt(part.var() + 1e-5) * gamma[members, None, None]
            np.testing.assert_allclose(y[n, members], scaled + beta[members, None, None], atol=1e-5)
    fn = function("GroupNormalization", [x, gamma, beta], 1, num_groups=2, settings=settings, **GC)
    check_gradient(fn, x, gamma, beta)


def test_batch_normalization_reports_unbiased_variance():
    x, scale, bias, mean, var = f32(4, 3, 5), f32(3), f32(3), f32(3), abs(f32(3))
    y, new_mean, new_var, batch_mean, batch_var = run("BatchNormalization", [x, scale, bias, mean, var], 5, **GC)
    biased, n = x.var((0, 2)), 20
    unbiased = (biased + 1e-5) * n / (n - 1) - 1e-5
    np.testing.assert_allclose(batch_var, unbiased, rtol=1e-5)
    np.testing.assert_allclose(new_var, 0.9 * var + 0.1 * unbiased, rtol=1e-5)
    np.testing.assert_allclose(new_mean, 0.9 * mean + 0.1 * x.mean((0, 2)), rtol=1e-4, atol=1e-6)
    normal = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(biased[None, :, None] + 1e-5)
    np.testing.assert_allclose(y, normal * scale[:, None] + bias[:, None], atol=1e-5)
    np.testing.assert_allclose(batch_mean, x.mean((0, 2)), atol=1e-6)


def test_multi_conv():
    torch = pytest.importorskip("torch")
    a, wa, ba, b, wb = f32(1, 4, 6, 6), f32(6, 2, 3, 3), f32(6), f32(2, 3, 8), f32(5, 3, 3)
    operands = [a, wa, ba, b, wb]
    attributes = {"numConvs": 2, "strides": [2, 2, 1], "pads": [1, 1, 1, 1, 0, 0], "dilations": [1, 1, 2], **GC}
    y, z = run("MultiConv", operands, 2, **attributes)
    conv = torch.nn.functional
    t = torch.tensor
    np.testing.assert_allclose(y, conv.conv2d(t(a), t(wa), t(ba), stride=2, padding=1, groups=2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z, conv.conv1d(t(b), t(wb), dilation=2), rtol=1e-4, atol=1e-5)
    check_gradient(function("MultiConv", operands, 2, **attributes), *operands)


def test_multi_conv_input_dilation_and_output_padding():
    x, w = f32(1, 2, 4), f32(3, 2, 2)
    (y,) = run("MultiConv", [x, w], numConvs=1, inDilations=[2], outPads=[1, 2], **GC)
    spread = np.zeros((1, 2, 7), np.float32)
    spread[..., ::2] = x
    (plain,) = run("Conv", [spread, w])
    np.testing.assert_allclose(y, np.pad(plain, ((0, 0), (0, 0), (1, 2))), rtol=1e-5)


def test_lstm_matches_the_onnx_operator():
    x, w, b, state = f32(5, 2, 3), f32(4, 7, 4), f32(4, 4), f32(2, 2, 4)
    y, c = run("LSTM", [x, w, b, state], 2, **GC)
    order = [1, 3, 0, 2]  # i, o, f, c out of f, i, c, o
    kernel = np.concatenate([w[g, :3].T for g in order])[None]
    recurrent = np.concatenate([w[g, 3:].T for g in order])[None]
    bias = np.concatenate([np.concatenate([b[g] for g in order]), np.zeros(16, np.float32)])[None]
    ys, _, yc = run("LSTM", [x, kernel, recurrent, bias, None, state[:1], state[1:]], 3, hidden_size=4)
    np.testing.assert_allclose(y, ys[:, 0], rtol=1e-5)
    np.testing.assert_allclose(c, yc[0], rtol=1e-5)
    lens = np.array([5, 2], np.int32)
    fn = function("LSTM", [x, w, b, state, lens], 2, **GC)
    np.testing.assert_array_equal(fn(x, w, b, state, lens)[0][2:, 1], 0)
    check_gradient(lambda *a: fn(*a, lens), x, w, b, state)


def test_elementwise():
    x, y = f32(3, 4), f32(4)
    np.testing.assert_allclose(run("Atan2", [x, y], **GC)[0], np.arctan2(x, y), rtol=1e-5)
    np.testing.assert_allclose(run("Fmod", [x, y], **GC)[0], np.fmod(x, y), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run("Remainder", [x, y], **GC)[0], np.mod(x, y), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(run("Round", [np.array([0.5, -2.5, 1.4], np.float32)], **GC)[0], [1, -3, 1])
    np.testing.assert_array_equal(run("NearbyInt", [np.array([0.5, -2.5, 1.4], np.float32)], **GC)[0], [0, -2, 1])
    bits = [np.array([12, -5], np.int32), np.array([10, 3], np.int32)]
    for op, expected in {"And": bits[0] & bits[1], "Or": bits[0] | bits[1], "Xnor": ~(bits[0] ^ bits[1])}.items():
        np.testing.assert_array_equal(run(f"Bitwise{op}", bits, **GC)[0], expected)
    (step,) = run("IncrementMod", [np.array([1, 4, -9], np.int32)], increment=2.0, modulus=5.0, **GC)
    np.testing.assert_array_equal(step, [3, 1, -2])
    assert step.dtype == np.int32
    (z,) = run("ScaledAdd", [x, x], scale0=2.0, scale1=-0.5, **GC)
    np.testing.assert_allclose(z, 1.5 * x, rtol=1e-6)
    edges = np.array([-1.0, 0.0, 1.0], np.float32)
    points = np.array([-1.0, 0.5, 7.0, np.nan], np.float32)
    np.testing.assert_array_equal(run("Bucketize", [points, edges], right=0, **GC)[0], [0, 2, 3, 3])
    np.testing.assert_array_equal(run("Bucketize", [points, edges], right=1, **GC)[0], [1, 2, 3, 3])


@pytest.mark.parametrize("op", ["Detach", "Nop"])
def test_gradient_stops(op):
    fn = function(op, [np.float32(2)], **GC)
    assert jax.grad(lambda x: x * fn(x)[0])(2.0) == 2.0


def test_shape_operators():
    x = f32(4, 6)
    np.testing.assert_array_equal(run("Subsample", [x], strides=[2, 4], **GC)[0], x[::2, ::4])
    np.testing.assert_array_equal(run("Reverse", [x], dimensions=[1], **GC)[0], x[:, ::-1])
    np.testing.assert_array_equal(run("Reshape", [x], shape=[0, 3, -1], **GC)[0], x.reshape(4, 3, 2))
    np.testing.assert_array_equal(run("Slice", [x], starts=[1], ends=[-1], axes=[1], **GC)[0], x[:, 1:-1])
    values, order = run("Sort", [x], 2, axis=1, descending=1, **GC)
    np.testing.assert_array_equal(values, -np.sort(-x, 1))
    assert order.dtype == np.int32
    median, index = run("ReduceMedian", [x], 2, axes=[1], keepdims=0, **GC)
    np.testing.assert_array_equal(median, np.sort(x, 1)[:, 2])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(index)[:, None], 1)[:, 0], median)
    check_gradient(function("ReduceMedian", [x], 1, axes=[1], **GC), x)
    with pytest.raises(popart_exception, match="Only positive dimensions"):
        run("Reverse", [x], dimensions=[-1], **GC)
    with pytest.raises(popart_exception, match="number of elements cannot change"):
        run("Reshape", [x], shape=[5, 5], **GC)
    (zeros,) = run("Init", [], shape=[2, 3], data_type=6, tensor_type=0, init_type=1, **GC)
    assert zeros.shape == (2, 3)
    assert zeros.dtype == np.int32


def test_spline_operators():
    pseudo, sizes, opened = (
        rng.uniform(0, 1, (4, 2)).astype(np.float32),
        np.array([3, 4], np.int32),
        np.array([1, 0], np.uint8),
    )
    basis, index = run("SplineBasis", [pseudo, sizes, opened], 2, degree=2, **GC)
    np.testing.assert_allclose(np.asarray(basis).sum(1), 1, rtol=1e-5)  # B-splines are a partition of unity
    v = pseudo * (sizes - 2 * opened)
    m = np.array([(s % 3, s // 3) for s in range(9)])
    expected = ((v.astype(int)[:, None, :] + m) % sizes) @ np.array([1, 3])
    np.testing.assert_array_equal(index, expected)
    x, w = f32(4, 3), f32(12, 3, 2)
    (y,) = run("SplineWeighting", [x, w, np.asarray(basis), np.asarray(index)], **GC)
    np.testing.assert_allclose(y, np.einsum("es,ei,esio->eo", basis, x, w[np.asarray(index)]), rtol=1e-4)


def test_shaped_dropout_shares_its_mask():
    x = np.ones((64, 8), np.float32)
    settings = {"training": True, "key": jax.random.key(1)}
    (y,) = run("ShapedDropout", [x], shape=[64, 1], ratio=0.25, settings=settings, **GC)
    y = np.asarray(y)
    assert set(np.unique(y)) <= {0.0, np.float32(1 / 0.75)}
    assert (y == y[:, :1]).all()
    assert 0 < (y == 0).mean() < 0.6
    np.testing.assert_array_equal(run("ShapedDropout", [x], shape=[64, 1], **GC)[0], x)


def test_print_tensor_prints_values_and_gradients(capfd):
    x = np.array([[6, 9], [12, 1]], np.int32)
    layout = {"summariseThreshold": 1000, "edgeItems": 3, "maxLineWidth": 75, "digits": 8, "floatFormat": 0,
              "separator": " ", "openBracket": "[", "closeBracket": "]", "title": "t", **GC}  # fmt: skip
    run("PrintTensor", [x], **layout)
    fn = jax.jit(jax.grad(lambda v: function("PrintTensor", [v], **layout)(v)[0].sum()))
    fn(jnp.float32(1)).block_until_ready()
    jax.effects_barrier()
    shown = capfd.readouterr().err
    assert "t: [[ 6  9]\n [12  1]]" in shown
    assert shown.index("t: 1.0000000") < shown.index("t_gradient: 1.0000000")


def test_print_tensor_works_for_every_replica_and_in_loops(capfd):
    layout = {"summariseThreshold": 9, "edgeItems": 3, "maxLineWidth": 75, "digits": 8, "floatFormat": 0,
              "separator": " ", "openBracket": "[", "closeBracket": "]", "title": "r", **GC}  # fmt: skip
    fn = function("PrintTensor", [np.float32(0)], **layout)
    jax.block_until_ready(jax.jit(jax.vmap(lambda v: fn(v)[0], axis_name="replica"))(jnp.arange(2.0)))
    jax.block_until_ready(jax.jit(lambda x: jax.lax.scan(lambda c, _: (fn(c)[0] + 1, None), x, length=3)[0])(5.0))
    jax.effects_barrier()
    lines = capfd.readouterr().err.split()[1::2]
    assert sorted(lines[:2]) == ["0.0000000", "1.0000000"]
    assert lines[2:] == ["5.0000000", "6.0000000", "7.0000000"]


def test_abort_stops_the_program():
    model = function("Abort", [np.float32(0)], 0, **GC)
    run_it = jax.jit(lambda v: (model(v), v)[1])
    assert run_it(jnp.float32(0)) == 0
    with pytest.raises(Exception, match="Abort"):
        _finish(run_it(jnp.float32(1)))
    with pytest.raises(popart_exception, match="can only test a scalar"):
        function("Abort", [f32(2)], 0, **GC)(f32(2))


def _finish(y):
    jax.block_until_ready(y)
    jax.effects_barrier()


def test_reduce_median_takes_axes_as_reductions_do():
    x = np.float32([[3, 1, 2], [6, 5, 4]])
    median, index = reduce_median(jnp.asarray(x), axes=())  # an empty list reduces nothing
    np.testing.assert_array_equal(median, x)
    np.testing.assert_array_equal(index, np.zeros_like(x, np.int32))
    negative, _ = run("ReduceMedian", [x], 2, axes=[-1], keepdims=0, **GC)
    np.testing.assert_array_equal(negative, [2, 5])
    with pytest.raises(popart_exception, match=r"Axis 5 is out of acceptable range \[-2, 1\]"):
        run("ReduceMedian", [x], 2, axes=[5], **GC)
