"""Results whose size depends on data, in a compiled program: joined, sliced, chosen, and bounded."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart

HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
FOUND = """z = Constant<value_float=0.0>() more = Greater(x, z) less = Less(x, z)
    c = Compress<axis=0>(x, more) d = Compress<axis=0>(x, less)
    zero = Constant<value_ints=[0]>() one = Constant<value_ints=[1]>() two = Constant<value_ints=[2]>()
    three = Constant<value_ints=[3]>() back = Constant<value_ints=[-1]>() far = Constant<value_ints=[-3]>()
    end = Constant<value_ints=[9223372036854775807]>() ten = Constant<value_ints=[10]>()
"""
CASES = {
    "joined": "y = Concat<axis=0>(c, x, d)",
    "joined and summed up": "j = Concat<axis=0>(d, c) no = Constant<value_int=0>() w = CumSum(j, no) y = Mul(w, w)",
    "the first": "y = Slice(c, zero, two)",
    "without the first": "y = Slice(c, one, end)",
    "the last three": "y = Slice(c, far, end)",
    "without the last": "y = Slice(c, zero, back)",
    "every other one": "y = Slice(c, one, end, zero, two)",
    "of other lengths": "j = Concat<axis=0>(c, d) s = Slice(j, zero, three) e = Compress<axis=0>(x, more) "
    "f = Slice(e, zero, three) y = Concat<axis=0>(s, f)",
    "a branch": """sh = Shape(c) p = ReduceProd<keepdims=0>(sh) none = Equal(p, n)
        y = If(none) <then_branch = t() => (float[a] nothing) { nothing = Constant<value = float[0] {}>() },
                      else_branch = e() => (float[b] rows) { most = ReduceMax<keepdims=0>(c) rows = Add(c, most) }>""",
    "a loop": """trips = Constant<value_int=3>() on = Constant<value = bool {1}>() s0 = ReduceSum<keepdims=0>(d)
        s = Loop(trips, on, s0) <body = l(int64 i, bool go, float s_in) => (bool go_on, float s_out) {
            go_on = Identity(go) mean = ReduceMean<keepdims=0>(c) s_out = Add(s_in, mean) }>
        y = Add(c, s)""",
    "written into": """sh = Shape(c) o = ConstantOfShape<value = float[1] {1}>(sh)
        y = ScatterElements<axis=0>(o, far, zs)""",
    "written at positions that were read": """i = Cast<to=7>(c) o = ConstantOfShape<value = float[1] {1}>(ten)
        sums = ScatterElements<axis=0, reduction = "add">(o, i, c) y = Concat<axis=0>(sums, c)""",
    "without what is no number": """w = Add(c, zs) p = IsNaN(w) i = IsInf(w) b = Or(p, i)
        y = Where(b, z, w)""",
    "cut to its own size": """u = Unsqueeze(c, one) sh = Shape(u) both = Constant<value_ints=[0, 0]>()
        s = Slice(u, both, sh) y = Reshape(s, back)""",
    "split and flat": "u = Unsqueeze(c, one) w = Concat<axis=1>(u, u) v = Flatten(w) y = Reshape(v, back)",
    "normalised": "u = Unsqueeze(c, zero) v = Unsqueeze(u, one) t = Transpose<perm=[2,0,1]>(v) y0 = GlobalMaxPool(t) "
    "y = Reshape(y0, back)",
}
X = np.array([3, -1, 4, -2, 5, 9, -6], np.float32)


def function(text: str, bounds: dict[str, Any] | None = None) -> tuple[Any, Any, onnx.ModelProto]:
    model = onnx.parser.parse_model(HEAD + text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is nothing to train
        fn, params = popart.to_jax(model, bounds=bounds)
    return fn, params, model


def peer(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[Any]:
    return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds))


@pytest.mark.parametrize("name", CASES)
def test_an_output_of_a_given_size_holds_what_was_found_first(name: str) -> None:
    text = f"(float[N] x, int64 n, float[1] zs) => (float[K] y) {{ {FOUND} {CASES[name]} }}"
    fn, params, model = function(text, {"y": (40, -77)})
    few = np.where(X == 9, X, -np.abs(X)) if "written" not in name else X
    for x in (X, few):
        feeds = {"x": x, "n": np.asarray(0), "zs": np.asarray([8], np.float32)}
        fed = {k: v for k, v in feeds.items() if k in fn.inputs}
        (theirs,) = peer(model, feeds)
        for call in (fn.jit, fn):
            made = np.asarray(call(params, fed)["y"])
            np.testing.assert_allclose(made[: len(theirs)], theirs, rtol=1e-6)
            assert made.shape == (40,)
            assert (made[len(theirs) :] == -77).all()


def test_a_size_that_is_too_small_cuts_and_gradients_see_what_is_left() -> None:
    fn, params, _ = function(
        f"(float[N] x) => (float[K] y) {{ {FOUND} j = Concat<axis=0>(c, d) y = Mul(j, j) }}", {"y": 5}
    )
    np.testing.assert_array_equal(fn.jit(params, {"x": X})["y"], [9, 16, 25, 81, 1])
    slope = jax.jit(jax.grad(lambda x: fn(params, {"x": x})["y"].sum()))(X)
    np.testing.assert_array_equal(slope, np.where((X == -2) | (X == -6), 0, 2 * X))


def test_what_is_added_tells_how_many_there_are() -> None:
    fn, params, model = function(f"(float[N] x, float[4] b) => (float[4] y) {{ {FOUND} y = Add(c, b) }}")
    b = np.arange(4, dtype=np.float32)
    for x in (X, -np.abs(X) * (X < 9) + X * (X == 9)):  # four found, and one for all
        feeds = {"x": x, "b": b}
        np.testing.assert_array_equal(jax.jit(fn)(params, feeds)["y"], peer(model, feeds)[0])
    slope = jax.jit(jax.grad(lambda x: (fn(params, {"x": x, "b": b})["y"] * b).sum()))(X)
    np.testing.assert_array_equal(slope, [0, 0, 1, 0, 2, 3, 0])
    with pytest.raises(Exception, match="another number of elements than the 4"):
        jax.block_until_ready(jax.jit(fn)(params, {"x": np.abs(X), "b": b}))


def test_a_size_for_what_depends_on_no_data_is_refused() -> None:
    fn, params, _ = function("(float[N] x) => (float[N] y) { y = Exp(x) }", {"y": 5})
    with pytest.raises(popart.popart_exception, match="the size of 'y' does not depend on data"):
        fn(params, {"x": X})


DETECTOR = """(float[1,2,8,8] image, float[6,4] boxes, float[6] scores) => (float[K,2] y, float[K] best, int64 count) {
    half = Constant<value_float=0.3>() good = Greater(scores, half) where = NonZero(good)
    flat = Constant<value_ints=[-1]>() rows = Reshape(where, flat) b = Gather(boxes, rows) s = Gather(scores, rows)
    sh = Shape(b) p = ReduceProd<keepdims=0>(sh) n0 = Constant<value_int=0>() none = Equal(p, n0)
    keep = If(none) <then_branch = t() => (int64[a] nothing) { nothing = Constant<value = int64[0] {}>() },
        else_branch = e() => (int64[k] kept) {
            z = Constant<value_ints=[0]>() zo = Constant<value_ints=[0, 1]>() bb = Unsqueeze(b, z) ss = Unsqueeze(s, zo)
            most = Constant<value_ints=[9]>() iou = Constant<value_floats=[0.5]>()
            k3 = NonMaxSuppression(bb, ss, most, iou) two = Constant<value_int=2>() kept = Gather<axis=1>(k3, two) }>
    kb = Gather(b, keep) best = Gather(s, keep) ks = Shape(keep) batch = ConstantOfShape<value = int64[1] {0}>(ks)
    region = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(image, kb, batch)
    filtered = Conv(region, w) pooled = GlobalAveragePool(filtered) y = Flatten(pooled)
    one = Constant<value_ints=[0]>() count = Squeeze(ks, one) }"""


def test_a_small_detector_gives_the_boxes_of_onnx_runtime_and_trains() -> None:
    generator = np.random.default_rng(0)
    model = onnx.parser.parse_model(HEAD + DETECTOR)
    weight = generator.normal(size=(2, 2, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    fn, params = popart.to_jax(model, bounds={"y": 4, "best": (8, -1)})
    corner = generator.uniform(0, 4, (6, 2)).astype(np.float32)
    corner[3] = corner[2] + 0.1
    feeds = {
        "image": generator.normal(size=(1, 2, 8, 8)).astype(np.float32),
        "boxes": np.concatenate([corner, corner + 3], -1),
        "scores": np.array([0.1, 0.9, 0.5, 0.6, 0.4, 0.2], np.float32),
    }
    for scores in (feeds["scores"], np.zeros(6, np.float32)):
        fed = {**feeds, "scores": scores}
        y, best, count = peer(model, fed)
        made = fn.jit(params, fed)
        assert int(made["count"]) == int(count) == len(best) == (3 if scores.any() else 0)
        np.testing.assert_allclose(made["y"], np.concatenate([y, np.zeros((4 - len(y), 2))]), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(made["best"], [*best, *[-1] * (8 - len(best))])
        slope = fn.exactly(jax.jit(jax.grad(lambda p, fed=fed: fn(p, fed)["y"].sum())))(params)["w"]
        moved = []
        for way in (0.5, -0.5):  # the sum is linear in the weight
            (tensor,) = model.graph.initializer
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(weight + np.float32(way) * (np.arange(4).reshape(2, 2, 1, 1) == 1), "w")
            )
            moved.append(peer(model, fed)[0].sum())
        tensor.CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
        assert float(slope[0, 1, 0, 0]) == pytest.approx(moved[0] - moved[1], rel=1e-4, abs=1e-5)


def test_branches_with_sizes_along_different_axes_are_refused_by_name() -> None:
    """Although another output of theirs has one axis in both."""
    text = f"""{HEAD}(float[3,3] x, bool c, bool[3] m) => (float s, float[A,B] both) {{
        y, both = If(c) <
          then_branch = t() => (float[P,Q] u, float[A,B] w) {{ u = Compress<axis=0>(x, m) w = Compress<axis=0>(x, m) }},
          else_branch = e() => (float[R,S] v, float[A,B] z) {{ v = Compress<axis=1>(x, m) z = Compress<axis=0>(x, m) }}
        > s = ReduceSum<keepdims=0>(y) }}"""
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = popart.to_jax(onnx.parser.parse_model(text))
    x, m = np.arange(9, dtype=np.float32).reshape(3, 3), np.array([True, False, True])
    feeds = {"x": x, "c": np.array(False), "m": m}
    np.testing.assert_array_equal(fn(params, feeds)["s"], x[:, m].sum())
    with pytest.raises(popart.popart_exception, match=r"call it outside jit(.|\n)*axis -2 counts.*axis -1 counts"):
        jax.jit(fn)(params, feeds)


def test_one_error_names_all_outputs_that_need_a_bound():
    text = """(float[N] x) => (int64[a, 1] y, int64[b] u, float[c] z, float[N] same) {
        q = Cast<to=7>(x) b = Cast<to=9>(x) n = NonZero(x) y = Transpose(n) u = Unique(q) z = Compress<axis=0>(x, b)
        same = Relu(x) }"""
    fn, params, _ = function(text)
    with pytest.raises(popart.popart_exception, match=r"bounds=\{'y': N, 'u': N, 'z': N\}"):
        fn.jit(params, X)
    fn, params, _ = function(text, {"u": 6})
    with pytest.raises(popart.popart_exception, match=r"bounds=\{'y': N, 'z': N\}"):
        fn.jit(params, X)
    fn, params, _ = function(text, {"y": 8, "u": 6, "z": 9})
    assert [x.shape for x in fn.jit(params, X).values()] == [(8, 1), (6,), (9,), (7,)]


def test_one_error_names_all_ranges_that_need_a_bound():
    text = """(float[N] x) => (int64[a] r, int64[b] s, int64[c] known) { t = ReduceSum<keepdims=0>(x) n = Cast<to=7>(t)
        zero = Constant<value_int=0>() one = Constant<value_int=1>() r = Range(zero, n, one) m = Add(n, one)
        s = Range(zero, m, one) size = Size(x) known = Range(zero, size, one) }"""
    fn, params, _ = function(text)
    with pytest.raises(popart.popart_exception, match=r"bounds=\{'r': N, 's': N\}"):
        fn.jit(params, X)
