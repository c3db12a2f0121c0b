"""Rows routed by NonZero: compiled, differentiated, trained and priced as they are computed eagerly."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax.__main__ import main

HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
WEIGHTS = {"r": (4, 3), "a": (4, 4), "b": (4, 4), "c": (4, 4)}
EXPERT = """ k{i} = Constant<value_int={i}>() is{i} = Equal(which, k{i}) found{i} = NonZero(is{i})
  turned{i} = Transpose(found{i}) rows{i} = GatherND(x, turned{i}) h{i} = MatMul(rows{i}, {w}) act{i} = Tanh(h{i})
  w{i} = GatherND(best, turned{i}) column{i} = Unsqueeze(w{i}, one) part{i} = Mul(act{i}, column{i})
  out{i} = ScatterND<reduction="add">(out{before}, turned{i}, part{i})"""
ROUTED = (
    """(float[N,4] x) => (float[N,4] out2) {
  scores = MatMul(x, r) p = Softmax(scores) which = ArgMax<axis=1, keepdims=0>(p)
  best = ReduceMax<axes=[1], keepdims=0>(p)
  one = Constant<value_ints=[1]>() sh = Shape(x) out_1 = ConstantOfShape(sh)
"""
    + "\n".join(EXPERT.format(i=i, w=w, before=b) for i, w, b in [(0, "a", "_1"), (1, "b", 0), (2, "c", 1)])
    + " }"
)
X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)


def routed() -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + ROUTED)
    generator = np.random.default_rng(1)
    for name, shape in WEIGHTS.items():
        array = generator.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("x", [X, X[:1], np.zeros_like(X), np.abs(X) * 9], ids=["mixed", "one row", "equal", "few"])
def test_a_compiled_mixture_of_experts(x: np.ndarray) -> None:
    (theirs,) = onnxruntime.InferenceSession(routed().SerializeToString()).run(None, {"x": x})
    fn, params = popart.to_jax(routed())
    for call in (fn.with_weights(params), lambda fed: fn.jit(params, fed), lambda fed: fn(params, fed)):
        np.testing.assert_allclose(call({"x": x})["out2"], theirs, rtol=1e-5, atol=1e-6)


def test_its_gradient_is_that_of_differences() -> None:
    fn, params = popart.to_jax(routed())
    target = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)

    def loss(params, x):
        return ((fn(params, {"x": x})["out2"] - target) ** 2).sum()

    slopes, along = fn.exactly(jax.jit(jax.grad(loss, argnums=(0, 1))))(params, X)
    session = onnxruntime.InferenceSession
    generator = np.random.default_rng(3)

    def reference(way: dict[str, np.ndarray], size: float) -> float:
        model = routed()
        for tensor in model.graph.initializer:
            moved = onnx.numpy_helper.to_array(tensor) + size * way[tensor.name]
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved.astype(np.float32), tensor.name))
        y = np.asarray(session(model.SerializeToString()).run(None, {"x": (X + size * way["x"]).astype(np.float32)})[0])
        return float(((y.astype(np.float64) - target) ** 2).sum())

    for name in [*WEIGHTS, "x"]:
        way = {n: np.zeros(s) for n, s in [*WEIGHTS.items(), ("x", X.shape)]}
        way[name] = generator.normal(size=way[name].shape)
        found = float(np.vdot(along if name == "x" else slopes[name], way[name]))
        near = (reference(way, 1e-3) - reference(way, -1e-3)) / 2e-3
        assert found == pytest.approx(near, rel=1e-2, abs=2e-3), name


UNSAFE = {
    "an output": "(float[N,4] x, bool[N] m) => (int64[1,k] i) { i = NonZero(m) }",
    "the other way round": """(float[N,4] x, bool[N] m) => (int64 y) {
        i = NonZero(m) last = Constant<value_ints=[-1]>() far = Constant<value_ints=[-9]>()
        axis = Constant<value_ints=[1]>() back = Slice(i, last, far, axis, last) y = ReduceSum<keepdims=0>(back) }""",
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_would_see_the_filling_is_refused(name: str) -> None:
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(onnx.parser.parse_model(HEAD + UNSAFE[name]))
    mask = np.array([True, False, True, False, False, False, False])
    with pytest.raises(popart.popart_exception, match=r"node '.*known only when the program runs.*bounds="):
        fn.jit(params, {"x": X, "m": mask})


def test_rows_are_written_at_positions_that_were_computed() -> None:
    text = """(float[N,4] x, bool[N] m) => (float[N,4] y) { i = NonZero(m) one = Constant<value_int=1>() j = Sub(i, one)
        last = Constant<value_int=2>() p = Min(j, last) t = Transpose(p) rows = GatherND(x, t)
        y = ScatterND<reduction="add">(x, t, rows) }"""
    model = onnx.parser.parse_model(HEAD + text)
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(model)
    feeds = {"x": X, "m": np.array([True, False, True, False, False, True, True])}
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(fn.jit(params, feeds)["y"], theirs, rtol=1e-6)


_ROWS = "i = NonZero(m) t = Transpose(i) rows = GatherND(x, t) "
_FIRST = "first = Constant<value_ints=[0]>() "
_LABELS = "labels = Constant<value_ints=[0,1,2,3,2,1,0]>() l = GatherND(labels, t) "
_LENGTH = """sh = Shape(rows) zero = Constant<value_int=0>() k = Gather(sh, zero) """
_COUNTED = """minus = Constant<value_ints=[-1]>() column = Unsqueeze(m, minus) size = Shape(x)
    wide = Expand(column, size) places = NonZero(wide) t = Transpose(places) flat = Constant<value_ints=[-1]>()
    line = Reshape(m, flat) whole = Cast<to=7>(line) n = ReduceSum(whole) """
"""What PyTorch's exporter writes of ``x[m] = ...``: where the mask is true, and how often."""
EXACT = {
    "a mean": _ROWS + "y = ReduceMean<axes=[0], keepdims=0>(rows)",
    "a sum": _ROWS + _FIRST + "y = ReduceSum<keepdims=0>(rows, first)",
    "a product": _ROWS + "y = ReduceProd<axes=[0]>(rows)",
    "the largest": _ROWS + "n = Neg(rows) y = ReduceMax<axes=[0]>(n)",
    "the smallest of all": _ROWS + "y = ReduceMin<keepdims=0>(rows)",
    "a norm": _ROWS + "one = Constant<value_float=1.0>() z = Add(rows, one) y = ReduceL2<axes=[0]>(z)",
    "the best two": _ROWS + "two = Constant<value_ints=[2]>() n = Neg(rows) y, k = TopK<axis=0>(n, two)",
    "a softmax over rows": _ROWS + _FIRST + "p = Softmax<axis=0>(rows) z = Mul(p, rows) y = ReduceSum(z, first)",
    "sums of rows": _ROWS + "back = Transpose<perm=[1,0]>(rows) y = MatMul(back, rows)",
    "a count": """i = NonZero(m) sh = Shape(i) f = Cast<to=1>(sh) one = Constant<value_int=1>()
        n = Gather(f, one) y = Div(x, n)""",
    "a mean by hand": _ROWS + _FIRST + _LENGTH + """s = ReduceSum<keepdims=0>(rows, first) f = Cast<to=1>(k)
        y = Div(s, f)""",
    "ones as long": _ROWS + _FIRST + """sh = Shape(rows) ones = ConstantOfShape<value = float[1] {2}>(sh)
        z = Mul(rows, ones) y = ReduceSum(z, first)""",
    "numbers as long": _ROWS + _FIRST + _LENGTH + """one = Constant<value_int=1>() r = Range(zero, k, one)
        f = Cast<to=1>(r) minus = Constant<value_ints=[1]>() column = Unsqueeze(f, minus) z = Mul(rows, column)
        y = ReduceSum(z, first)""",
    "Compress": _FIRST + "rows = Compress<axis=0>(x, m) z = Mul(rows, rows) y = ReduceSum(z, first)",
    "Compress of positions": """all = Constant<value_ints=[0,1,2,3,4,5,6]>() k = Compress(all, m)
        rows = Gather(x, k) y = ReduceMean<axes=[0]>(rows)""",
    "Unique": """three = Constant<value_float=3.0>() s = Mul(x, three) r = Round(s) u, f, back, c = Unique(r)
        q = Mul(u, u) picked = Gather(q, back) sh = Shape(x) z = Reshape(picked, sh) y = Mul(z, x)""",
    "counts of Unique": """r = Round(x) u, f, back, c = Unique(r) w = Cast<to=1>(c) z = Mul(u, w) s = ReduceSum(z)
        y = Mul(x, s)""",
    "a loss of some rows": _ROWS + _LABELS + "y = SoftmaxCrossEntropyLoss(rows, l)",
    "a one-hot of some labels": _ROWS + _FIRST + _LABELS + """four = Constant<value_int=4>()
        values = Constant<value_floats=[0.0, 1.0]>() hot = OneHot(l, four, values) z = Mul(hot, rows)
        y = ReduceSum<keepdims=0>(z, first)""",
    "the last row": _ROWS + "end = Constant<value_ints=[-1]>() y = Gather(rows, end)",
    "pieces of rows": _ROWS + _FIRST + """two = Constant<value_ints=[-1,2]>() z = Reshape(rows, two)
        q = Mul(z, z) y = ReduceSum<keepdims=0>(q, first)""",
    "heads of rows": _ROWS + """heads = Constant<value_ints=[-1,2,2]>() z = Reshape(rows, heads)
        back = Transpose<perm=[1,0,2]>(z) p = Softmax<axis=1>(back) w = Mul(p, back) y = ReduceSum<keepdims=0>(w)""",
    "as many of others": _ROWS + _FIRST + _LENGTH + """minus = Constant<value_ints=[0]>() e = Unsqueeze(k, minus)
        h = Slice(x, first, e, first) w = Mul(h, rows) y = ReduceSum<keepdims=0>(w)""",
    "as many of a line": _ROWS + _FIRST + _LENGTH + """flat = Constant<value_ints=[-1]>() l = Reshape(rows, flat)
        e = Unsqueeze(k, first) h = Slice(l, first, e) y = ReduceSum<keepdims=0>(h)""",
    "rows after others": _ROWS + "all = Concat<axis=0>(x, rows) w = Mul(all, all) y = ReduceMean<axes=[0]>(w)",
    "a number where a mask is": _COUNTED.replace("m, flat", "wide, flat") + """half = Constant<value_float=0.5>()
        l = Expand(half, n) y = ScatterND(x, t, l)""",
    "the first ones": """c = Cast<to=7>(m) k = ReduceSum<keepdims=0>(c) zero = Constant<value_ints=[0]>()
        e = Unsqueeze(k, zero) h = Slice(x, zero, e) y = ReduceSum<keepdims=0>(h, zero)""",
    "a count by itself": """c = Cast<to=7>(m) k = ReduceSum<keepdims=0>(c) f = Cast<to=1>(k) y = Div(x, f)""",
    "rows of rows": _ROWS + """last = Constant<value_ints=[1]>() zero = Constant<value_float=0.0>()
        s = ReduceSum<keepdims=0>(rows, last) large = Greater(s, zero) j = NonZero(large) tt = Transpose(j)
        again = GatherND(rows, tt) y = ReduceMax<axes=[0]>(again)""",
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_what_looks_along_the_rows_counts_those_that_were_found(name: str) -> None:
    model = onnx.parser.parse_model(f"{HEAD} (float[7,4] x, bool[7] m) => (float[n,k] y) {{ {EXACT[name]} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is nothing to train
        fn, params = popart.to_jax(model)
    mask = np.array([True, True, False, True, False, False, False])
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X, "m": mask})
    np.testing.assert_allclose(fn.jit(params, {"x": X, "m": mask})["y"], theirs, rtol=1e-5, atol=1e-6)
    weight = np.random.default_rng(4).normal(size=np.shape(theirs)).astype(np.float32)

    def loss(x: Any, m: Any) -> Any:
        return (fn(params, {"x": x, "m": m})["y"] * weight).sum()

    slope = fn.exactly(jax.jit(jax.grad(loss)))(X, mask)
    near = fn.exactly(jax.jit(jax.grad(lambda x: loss(x, mask))))(X)  # the mask is known: rows are exact
    np.testing.assert_allclose(slope, near, rtol=1e-4, atol=1e-5)


def test_a_count_may_be_seen_and_outputs_keep_their_order() -> None:
    text = """(float[N,4] x, bool[N] m) => (float[4] y, int64[k] after, int64[1] again, int64 a) {
        i = NonZero(m) sh = Shape(i) one = Constant<value_ints=[1]>() again = Gather(sh, one) t = Transpose(i)
        rows = GatherND(x, t) y = ReduceMean<axes=[0], keepdims=0>(rows) c = Cast<to=7>(m) a = ReduceSum<keepdims=0>(c)
        after = Add(again, one) }"""
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(onnx.parser.parse_model(HEAD + text))
    mask = np.array([False, True, False, False, True, True, False])
    for call in (fn.with_weights(params), lambda fed: fn.jit(params, fed), lambda fed: fn(params, fed)):
        found = call({"x": X, "m": mask})
        assert list(found) == ["y", "after", "again", "a"]
        assert [np.asarray(found[n]).tolist() for n in ("after", "again", "a")] == [[4], [3], 3]


_WRITTEN = (
    _ROWS.replace("t =", "of_rows =").replace("x, t", "x, of_rows")
    + _COUNTED
    + """w = Mul(rows, rows) width = Constant<value_ints=[4]>() shape = Concat<axis=0>(n, width)
    same = Expand(w, shape) l = Reshape(same, flat) y = ScatterND(x, t, l)"""
)


def test_the_number_of_rows_found_is_counted_where_sizes_are_symbols() -> None:
    text = f"(float[N,4] x, bool[N] m) => (float[N,4] y) {{ {_WRITTEN} }}"
    with pytest.warns(UserWarning, match="no float weights"):
        fn, _ = popart.to_jax(onnx.parser.parse_model(HEAD + text))
    (n,) = jax.export.symbolic_shape("n")
    mask = np.array([True, True, False, True, False, False, False])
    with fn.precision():
        fed = {"x": jax.ShapeDtypeStruct((n, 4), np.float32), "m": jax.ShapeDtypeStruct((n,), bool)}
        exported = jax.export.export(jax.jit(lambda x: fn({}, x)["y"]))(fed)
        np.testing.assert_allclose(exported.call({"x": X, "m": mask}), np.where(mask[:, None], X * X, X), rtol=1e-6)


def test_boxes_that_are_kept_train() -> None:
    text = """(float[1,6,4] boxes, float[1,1,6] scores) => (float y) { most = Constant<value_ints=[6]>()
      iou = Constant<value_floats=[0.3]>() least = Constant<value_floats=[0.1]>()
      k = NonMaxSuppression(boxes, scores, most, iou, least) two = Constant<value_ints=[2]>() c = Gather<axis=1>(k, two)
      flat = Constant<value_ints=[-1]>() at = Reshape(c, flat) zero = Constant<value_ints=[0]>()
      all = Squeeze(boxes, zero) kept = Gather(all, at) y = ReduceMean<keepdims=0>(kept) }"""
    model = onnx.parser.parse_model(HEAD + text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is nothing to train
        fn, params = popart.to_jax(model)
    corner = np.random.default_rng(0).uniform(0, 3, (1, 6, 2)).astype(np.float32)
    scores = np.linspace(0, 1, 6, dtype=np.float32)[None, None]
    fed = {"boxes": np.concatenate([corner, corner + 1.5], -1), "scores": scores}
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, fed)
    np.testing.assert_allclose(fn.jit(params, fed)["y"], theirs, rtol=1e-6)
    slope = fn.exactly(jax.jit(jax.grad(lambda b: fn(params, {**fed, "boxes": b})["y"])))(fed["boxes"])
    assert float(slope.sum()) == pytest.approx(1.0, rel=1e-5)
    assert 0 < np.count_nonzero(slope.any(-1)) < 6


def test_a_bound_fills_with_positions_that_are_dropped() -> None:
    text = """(float[N,4] x, bool[N] m) => (float[N,4] y) {
        i = NonZero(m) t = Transpose(i) rows = GatherND(x, t) two = Add(rows, rows)
        y = ScatterND<reduction="add">(x, t, two) }"""
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(onnx.parser.parse_model(HEAD + text), bounds={"i": 5})
    mask = np.array([False, True, False, False, True, False, False])
    np.testing.assert_allclose(fn.jit(params, {"x": X, "m": mask})["y"], X + 2 * X * mask[:, None], rtol=1e-6)


FLAT = """(float[N,4] x, bool[N,4] m) => (float[N,4] y) {
  i = NonZero(m) row, column = Split<axis=0, num_outputs=2>(i) width = Constant<value_int=4>() far = Mul(row, width)
  at = Add(far, column) flat = Constant<value_ints=[-1]>() line = Reshape(x, flat) k = Reshape(at, flat)
  picked = Gather(line, k) double = Add(picked, picked) added = ScatterElements<reduction="add">(line, k, double)
  sh = Shape(x) y = Reshape(added, sh) }"""


def test_positions_may_be_worked_out_from_others() -> None:
    model = onnx.parser.parse_model(HEAD.replace("17", "18") + FLAT)
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(model)
    mask = np.random.default_rng(2).random(X.shape) < 0.4
    np.testing.assert_allclose(fn.jit(params, {"x": X, "m": mask})["y"], X + 2 * X * mask, rtol=1e-6)
    slope = fn.exactly(jax.jit(jax.grad(lambda x: fn(params, {"x": x, "m": mask})["y"].sum())))(X)
    np.testing.assert_array_equal(slope, 1 + 2 * mask.astype(np.float32))


READS = {
    "GatherND": "t = Transpose(i) rows = GatherND(x, t)",
    "Gather": "axis = Constant<value_ints=[0]>() k = Squeeze(i, axis) rows = Gather(x, k)",
    "Gather of the other axis": """axis = Constant<value_ints=[0]>() k = Squeeze(i, axis) turned = Transpose(x)
        found = Gather<axis=1>(turned, k) rows = Transpose(found)""",
    "GatherElements": """t = Transpose(i) shape = Constant<value_ints=[1,4]>() wide = Expand(t, shape)
        rows = GatherElements(x, wide)""",
}


@pytest.mark.parametrize("name", READS)
def test_what_is_read_beyond_a_given_bound_is_zero(name: str) -> None:
    """So sums are right, and so are their gradients."""
    text = f"""(float[N,4] x, bool[N] m) => (float[4] y) {{ i = NonZero(m) {READS[name]}
        first = Constant<value_ints=[0]>() y = ReduceSum<keepdims=0>(rows, first) }}"""
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(onnx.parser.parse_model(HEAD + text), bounds={"i": 5})
    mask = np.array([False, True, False, False, True, False, False])
    np.testing.assert_allclose(fn.jit(params, {"x": X, "m": mask})["y"], X[mask].sum(0), rtol=1e-5)
    slope = fn.exactly(jax.jit(jax.grad(lambda x: fn(params, {"x": x, "m": mask})["y"].sum())))(X)
    np.testing.assert_array_equal(slope, np.repeat(mask[:, None], 4, 1).astype(np.float32))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_session_trains_it(replicas: int) -> None:
    model = routed()
    shapes = popart.InputShapeInfo()
    shapes.add("x", popart.TensorInfo("FLOAT", list(X.shape)))
    builder = popart.Builder(model.SerializeToString())
    loss = builder.aiGraphcore.l1loss(["out2"], 0.5, popart.ReductionType.Sum)
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), loss,
        popart.ConstSGD(0.1), popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas}),
        inputShapeInfo=shapes, userOptions=options,
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    batches = np.stack([X, X[::-1] * 0.5])[:replicas]
    session.run(popart.PyStepIO({"x": batches if replicas > 1 else X}, anchors))
    session.weightsToHost()
    found = {n: np.empty(s, np.float32) for n, s in WEIGHTS.items()}
    session.readWeights(popart.PyWeightsIO(found))
    fn, params = popart.to_jax(model)

    def expected(p):
        return sum(0.5 * abs(fn(p, {"x": x})["out2"]).sum() for x in batches)

    value, slope = jax.value_and_grad(expected)(params)
    np.testing.assert_allclose(np.sum(anchors[loss]), value, rtol=1e-5)
    for name, w in params.items():
        np.testing.assert_allclose(found[name], w - 0.1 * slope[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_routed_model_is_profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(routed(), tmp_path / "m.onnx")
    assert main(["profile", str(tmp_path / "m.onnx"), "--dim", "N=7", "--top", "5"]) == 0
    assert "MatMul" in capsys.readouterr().out
