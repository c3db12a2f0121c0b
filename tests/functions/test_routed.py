"""Rows routed by NonZero: compiled, differentiated, trained and priced as they are computed eagerly."""

from __future__ import annotations

from pathlib import Path

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
    "a sum": """(float[N,4] x, bool[N] m) => (float[4] y) {
        i = NonZero(m) t = Transpose(i) rows = GatherND(x, t) y = ReduceMean<axes=[0], keepdims=0>(rows) }""",
    "a count": """(float[N,4] x, bool[N] m) => (float[N,4] y) {
        i = NonZero(m) sh = Shape(i) f = Cast<to=1>(sh) one = Constant<value_int=1>()
        n = Gather(f, one) y = Div(x, n) }""",
    "sums of rows": """(float[N,4] x, bool[N] m) => (float[4,4] y) {
        i = NonZero(m) t = Transpose(i) rows = GatherND(x, t) back = Transpose<perm=[1,0]>(rows)
        y = MatMul(back, rows) }""",
    "arithmetic that is no moving of positions": """(float[N,4] x, bool[N] m) => (float[N,4] y) {
        i = NonZero(m) two = Max(i, i) t = Transpose(two) rows = GatherND(x, t) y = ScatterND(x, t, rows) }""",
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_would_see_the_filling_is_refused(name: str) -> None:
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(onnx.parser.parse_model(HEAD + UNSAFE[name]))
    mask = np.array([True, False, True, False, False, False, False])
    with pytest.raises(popart.popart_exception, match=r"node '.*known only when the program runs.*bounds="):
        fn.jit(params, {"x": X, "m": mask})


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
