"""Slices and ranges from a start that only the run knows, Slices to such an end, loops that begin with any shape."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax.lowering.dynamic_sizes import padded

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
pytestmark = pytest.mark.filterwarnings("ignore:The model has no trainable parameters")
RNG = np.random.default_rng(0)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} {text}")


def peer(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, feed)]


FILLED = parsed("""g(float[2,3] v) => (float[2,5] y, int64[1] n) {
    trip = Constant<value = int64 {100}>()
    true = Constant<value = bool {1}>()
    shape = Constant<value = int64[2] {2, 5}>()
    zeros = ConstantOfShape(shape)
    zero = Constant<value = int64[1] {0}>()
    y, n = Loop(trip, true, zeros, zero) <body = b(int64 k, bool on, float[2,5] x, int64[1] i) => (goes, filled, next) {
        one = Constant<value = float {1}>()
        axis = Constant<value = int64[1] {1}>()
        step = Constant<value = int64[1] {1}>()
        wide = Cast<to = 1>(i)
        more = Add(wide, one)
        next = Cast<to = 7>(more)
        size = Shape<start = 1, end = 2>(x)
        end = Min(size, next)
        part = Slice(x, i, end, axis, step)
        like = Shape(part)
        sum = ReduceSum<keepdims = 1>(v, axis)
        value = Mul(sum, wide)
        spread = Expand(value, like)
        first = Squeeze(i)
        last = Squeeze(end)
        by = Squeeze(step)
        places = Range(first, last, by)
        column = Unsqueeze(places, axis)
        turned = Transpose(column)
        two = Constant<value = int64[2] {2, 1}>()
        index = Tile(turned, two)
        filled = ScatterElements<axis = 1>(x, index, spread)
        four = Constant<value = int64[1] {4}>()
        less = Less(next, four)
        goes = Squeeze(less)
    }>
}""")


def test_a_loop_fills_one_column_after_the_other():
    v = RNG.normal(size=(2, 3)).astype(np.float32)
    fn, params = popart.to_jax(FILLED)
    found = jax.jit(fn)(params, {"v": v})
    for name, wanted in zip(("y", "n"), peer(FILLED, {"v": v}), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda v: fn(params, {"v": v})["y"].sum()))(v)
    np.testing.assert_allclose(slope, np.full((2, 3), 0 + 1 + 2 + 3), rtol=1e-6)


MOVED = parsed("""g(float[6] x, int64[1] i) => (float[2] y) {
    two = Constant<value = int64[1] {2}>()
    end = Add(i, two)
    y = Slice(x, i, end)
}""")


@pytest.mark.parametrize("start", [0, 3, 4])
def test_a_slice_of_known_length_moves(start):
    x, i = RNG.normal(size=6).astype(np.float32), np.asarray([start])
    fn, params = popart.to_jax(MOVED)
    np.testing.assert_array_equal(fn.jit(params, {"x": x, "i": i})["y"], x[start : start + 2])


@pytest.mark.parametrize("start", [-1, 5, 9])
def test_one_that_would_be_shorter_stops_the_run(start):
    x, i = RNG.normal(size=6).astype(np.float32), np.asarray([start])
    fn, params = popart.to_jax(MOVED)
    with pytest.raises(Exception, match=r"has 2 elements from a start that only the run knows.* leaves 0 and 6"):
        np.asarray(fn.jit(params, {"x": x, "i": i})["y"])
    np.testing.assert_array_equal(popart.backend.run_model(MOVED, [x, i])[0], peer(MOVED, {"x": x, "i": i})[0])


BOX = parsed("""g(float[4,6,5] x, int64 i, int64[1] k) => (float[3,2,4] y) {
    axis = Constant<value = int64[1] {0}>()
    two = Constant<value = int64[1] {2}>()
    row = Unsqueeze(i, axis)
    column = Add(k, two)
    from = Concat<axis = 0>(two, row, column)
    sizes = Constant<value = int64[3] {2, 3, -1}>()
    axes = Constant<value = int64[3] {-2, 0, 2}>()
    to = Add(from, sizes)
    longer = Constant<value = int64[3] {0, 0, 5}>()
    end = Add(to, longer)
    y = Slice(x, from, end, axes)
}""")


@pytest.mark.parametrize(("row", "column", "stopped"), [(0, -1, False), (1, -2, False), (2, -1, True), (1, 0, True)])
def test_a_slice_of_known_lengths_moves_along_several_axes(row, column, stopped):
    """As jax.lax.dynamic_slice is written: starts joined from fixed and moving ones, ends that add the sizes."""
    feed = {"x": RNG.normal(size=(4, 6, 5)).astype(np.float32), "i": np.asarray(row), "k": np.asarray([column])}
    fn, params = popart.to_jax(BOX)
    if stopped:
        with pytest.raises(Exception, match=r"has [34] elements from a start that only the run knows"):
            np.asarray(fn.jit(params, feed)["y"])
    else:
        np.testing.assert_array_equal(fn.jit(params, feed)["y"], peer(BOX, feed)[0])


CUT = parsed("""g(float[2,6] x, int64[1] i) => (float[2,n] y, float[2,1] s) {
    one = Constant<value = int64[1] {1}>()
    y = Slice(x, one, i, one)
    s = ReduceSum(y, one)
}""")


@pytest.mark.parametrize("end", [0, 1, 4, 6, 9, -1, -4, -9])
def test_a_slice_to_an_end_of_the_run_is_filled_up(end):
    x, i = RNG.normal(size=(2, 6)).astype(np.float32), np.asarray([end])
    cut, total = peer(CUT, {"x": x, "i": i})
    fn, params = popart.to_jax(CUT, bounds={"y": 5})
    found = fn.jit(params, {"x": x, "i": i})["y"]
    np.testing.assert_array_equal(found, np.pad(cut, ((0, 0), (0, 5 - cut.shape[1]))))
    alone = onnx.ModelProto()
    alone.CopyFrom(CUT)
    del alone.graph.output[0]
    fn, params = popart.to_jax(alone)
    np.testing.assert_allclose(fn.jit(params, {"x": x, "i": i})["s"], total, rtol=1e-5)


def test_without_a_bound_its_result_is_no_output():
    fn, params = popart.to_jax(CUT)
    with pytest.raises(popart.popart_exception, match=r"give each such result a bound: to_jax\(model, bounds="):
        fn.jit(params, {"x": np.ones((2, 6), np.float32), "i": np.asarray([3])})


GROWN = parsed("""g(float[4] x) => (float[k] y, int64[1] n) {
    trip = Constant<value = int64 {100}>()
    true = Constant<value = bool {1}>()
    single = Constant<value = int64[1] {1}>()
    nothing = ConstantOfShape(single)
    zero = Constant<value = int64[1] {0}>()
    y, n = Loop(trip, true, nothing, zero) <body = b(int64 k, bool on, float[j] last, int64[1] i) => (goes, now, next) {
        one = Constant<value = int64[1] {1}>()
        next = Add(i, one)
        times = Cast<to = 1>(next)
        now = Mul(x, times)
        largest = ReduceMax<keepdims = 0>(now)
        limit = Constant<value = float {9}>()
        goes = Less(largest, limit)
    }>
}""")


@pytest.mark.parametrize("scale", [1, 5, 20])
def test_a_loop_may_begin_with_another_shape(scale):
    x = (scale * RNG.random(4)).astype(np.float32)
    fn, params = popart.to_jax(GROWN)
    found = fn.jit(params, {"x": x})
    for name, wanted in zip(("y", "n"), peer(GROWN, {"x": x}), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6)


FOUND = parsed("""g(float[3,4] x, int64[1] i) => (int64[2,n] at, float[3,m] y, float[k] kept, float[3,4] z) {
    a = Relu(x)
    b = Mul(a, a)
    z = Sqrt(b)
    at = NonZero(z)
    one = Constant<value = int64[1] {1}>()
    zero = Constant<value = int64[1] {0}>()
    part = Slice(z, zero, i, one)
    y = Neg(part)
    half = Constant<value = float {0.5}>()
    all = Constant<value = int64[1] {-1}>()
    flat = Reshape(z, all)
    large = Greater(flat, half)
    kept = Compress(z, large)
}""")


@pytest.mark.parametrize("end", [0, 2, 9])
def test_called_from_the_host_results_are_cut_to_their_size(end):
    fn, params = popart.to_jax(FOUND)
    for _ in range(2):
        feed = {"x": RNG.normal(size=(3, 4)).astype(np.float32), "i": np.asarray([end])}
        found = fn(params, feed)
        for name, wanted in zip(("at", "y", "kept", "z"), peer(FOUND, feed), strict=True):
            assert (found[name].shape, found[name].dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(found[name], wanted, rtol=1e-6)
    assert not fn._never_compiled


def test_large_ones_have_their_exact_size_all_the_way(monkeypatch):
    monkeypatch.setattr(padded, "_MOST", 3)
    feed = {"x": RNG.normal(size=(3, 4)).astype(np.float32), "i": np.asarray([2])}
    fn, params = popart.to_jax(FOUND)
    np.testing.assert_allclose(fn(params, feed)["y"], peer(FOUND, feed)[1], rtol=1e-6)
    assert fn._never_compiled


DETECTED = parsed("""g(float[20] score, float[20,4] box, float limit) => (float[n] best, float[n,4] at) {
    likely = Greater(score, limit)
    found = NonZero(likely)
    place = Transpose<perm = [1, 0]>(found)
    kept = GatherND(score, place)
    count = Shape(kept)
    most = Constant<value = int64[1] {6}>()
    k = Min(most, count)
    best, rank = TopK<axis = 0>(kept, k)
    column = Constant<value = int64[1] {1}>()
    row = Squeeze(place, column)
    chosen = Gather(row, rank)
    at = Gather(box, chosen)
}""")


@pytest.mark.parametrize("limit", [-1.0, 0.5, 0.85, 2.0])
def test_the_best_of_what_was_found(limit):
    feed = {"score": RNG.random(20).astype(np.float32), "box": RNG.random((20, 4)).astype(np.float32)}
    feed["limit"] = np.asarray(limit, np.float32)
    fn, params = popart.to_jax(DETECTED)
    found, wanted = fn(params, feed), dict(zip(("best", "at"), peer(DETECTED, feed), strict=True))
    for name, exact in wanted.items():
        assert found[name].shape == exact.shape
        np.testing.assert_array_equal(found[name], exact)
    assert not fn._never_compiled


INSIDE = parsed("""g(float[4] x, bool on) => (int64[1,n] at, float[4] z) {
    a = Relu(x)
    b = Mul(a, a)
    c = Sqrt(b)
    d = Neg(c)
    z = Abs(d)
    at = If(on) <then_branch = t() => (int64[1,n] found) { found = NonZero(z) },
                 else_branch = e() => (int64[1,n] none) { none = NonZero(x) }>
}""")


@pytest.mark.parametrize("on", [True, False])
def test_sizes_that_a_branch_decides_are_exact_too(on):
    feed = {"x": RNG.normal(size=4).astype(np.float32), "on": np.asarray(on)}
    fn, params = popart.to_jax(INSIDE)
    for _ in range(2):
        np.testing.assert_array_equal(fn(params, feed)["at"], peer(INSIDE, feed)[0])
    assert not fn._never_compiled
