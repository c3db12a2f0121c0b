"""The first layers of light networks take a batch piece by piece; numbers, derivatives and anchors stay."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import popart_jax as popart
from popart_jax.lowering import Settings, evaluate
from popart_jax.lowering.kernels import onednn
from popart_jax.lowering.passes import channels_last, in_pieces
from popart_jax.model.files.load import load
from popart_jax.ops.kernels import staying

SIDE = 104
LIGHT = """a = Conv(x, w0, b0) r = Clip(a, low, high) d = Conv<group=48, pads=[1,1,1,1], strides=[2,2]>(r, w1)
    m = Add(d, column) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(m) s = Conv(p, w2) """
SMOOTH = """a = Conv(x, w0, b0) r = Tanh(a) d = Conv<group=48, pads=[1,1,1,1], strides=[2,2]>(r, w1)
    p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(d) y = Conv(p, w2) """
SHAPES = {"w0": (48, 3, 1, 1), "b0": (48,), "w1": (48, 1, 3, 3), "column": (48, 1, 1), "w2": (8, 48, 1, 1)}


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that are large enough take long in the reference evaluator."""
    monkeypatch.setattr(sys.modules[in_pieces.__module__], "_KEPT", 10 << 20)


def model(rows: int, body: str, outputs: str = "y", **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """A network on images of 104 x 104, whose layer of 48 channels writes 2 MB an image."""
    head = f'<ir_version: 8, opset_import: ["": 13]> g(float[{rows},3,{SIDE},{SIDE}] x) => ({outputs}) '
    proto = onnx.parser.parse_model(head + "{ " + body + " }")
    rng = np.random.default_rng(0)
    held: dict[str, Any] = {n: rng.normal(size=s).astype(np.float32) / 2 for n, s in {**SHAPES, **shapes}.items()}
    held |= {"low": np.float32(-0.5), "high": np.float32(1.5)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in held.items())
    for name in outputs.split(", "):
        proto.graph.output[outputs.split(", ").index(name)].type.tensor_type.elem_type = 1
    return onnx.shape_inference.infer_shapes(proto)


def images(rows: int) -> np.ndarray:
    """Random images."""
    return np.random.default_rng(1).normal(size=(rows, 3, SIDE, SIDE)).astype(np.float32)


def session(proto: onnx.ModelProto, *names: str) -> tuple[Any, Any]:
    """An inference session that returns these tensors, and its graph as it runs."""
    flow = popart.DataFlow(1, {name: popart.AnchorReturnType("All") for name in names})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.InferenceSession(proto.SerializeToString(), flow, device)
    made.prepareDevice()
    return made, made._engine.programs[""].laid_out.program.graph


def pieces(graph: Any) -> list[Any]:
    """The nodes that the pass made."""
    return [node for node in graph if node.op_type == "InPieces"]


def rewritten(proto: onnx.ModelProto, protected: tuple[str, ...] = ()) -> Any:
    """The graph after the passes."""
    graph = load(proto).graph
    channels_last(graph, protected)
    in_pieces(graph, protected, lambda: True)
    return graph


@pytest.mark.skipif(not onednn.usable(), reason="the pass is for oneDNN's convolutions")
@pytest.mark.parametrize("rows", [5, 6, 7, 12, 13])
def test_a_session_computes_what_onnx_runtime_does(rows: int) -> None:
    proto, x = model(rows, LIGHT + "t = Relu(s) g = GlobalAveragePool(t) y = Flatten(g)"), images(rows)
    made, graph = session(proto, "y")
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": x}, anchors))
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(anchors["y"], expected, rtol=1e-4, atol=1e-4)
    found = pieces(graph)
    assert len(found) == (rows > 5)
    assert all(1 <= node.attributes["size"].value < rows for node in found)


@pytest.mark.skipif(not onednn.usable(), reason="the pass is for oneDNN's convolutions")
def test_exporters_leave_shapes_open() -> None:
    proto = model(6, LIGHT + "y = Relu(s)")
    proto.graph.ClearField("value_info")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    shapes = popart.InputShapeInfo()
    shapes.add("x", popart.TensorInfo("FLOAT", [6, 3, SIDE, SIDE]))
    flow, device = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    made = popart.InferenceSession(proto.SerializeToString(), flow, device, shapes)
    made.prepareDevice()
    assert pieces(made._engine.programs[""].laid_out.program.graph)


@pytest.mark.parametrize(("rows", "size"), [(6, 3), (7, 4), (10, 5), (13, 5)])
def test_the_last_piece_may_overlap_the_one_before(rows: int, size: int) -> None:
    proto, x = model(rows, LIGHT + "y = Relu(s)"), images(rows)
    graph = rewritten(proto)
    (node,) = pieces(graph)
    assert node.attributes["size"].value == size
    with staying():
        y = jax.jit(lambda x: evaluate(graph, {"x": x}, ["y"], Settings({"": 13}))["y"])(x)
    np.testing.assert_allclose(y, ReferenceEvaluator(proto).run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


class AveragePool(OpRun):
    """Means of windows side by side; the reference evaluator's own visits each window in Python."""

    op_domain = ""

    def _run(self, x: np.ndarray, kernel_shape: Any = None, strides: Any = None, **_: Any) -> tuple[np.ndarray]:
        assert list(kernel_shape) == list(strides)
        (n, c, h, w), (i, j) = x.shape, kernel_shape
        return (x.reshape(n, c, h // i, i, w // j, j).mean((3, 5)),)


def test_derivatives_stay() -> None:
    """Forwards and backwards, beside a difference of the reference evaluator's weighted sums in the direction of v."""
    proto, x = model(6, SMOOTH), images(6)
    graph = rewritten(proto)
    assert pieces(graph)

    def total(x: Any) -> Any:
        return jnp.vdot(weights, evaluate(graph, {"x": x}, ["y"], Settings({"": 13}))["y"])

    v, step, weights = images(6)[::-1], 1e-4, np.random.default_rng(2).normal(size=(6, 8, 26, 26)).astype(np.float32)
    _, ahead = jax.jvp(total, (x,), (v,))
    back = jax.grad(total)(jnp.asarray(x))
    np.testing.assert_allclose(np.vdot(back, v), ahead, rtol=1e-4)
    reference = ReferenceEvaluator(in_float64(proto), new_ops=[AveragePool])
    ends = [np.vdot(weights, reference.run(None, {"x": x + s * step * v.astype(np.float64)})[0]) for s in (1, -1)]
    np.testing.assert_allclose(ahead, (ends[0] - ends[1]) / (2 * step), rtol=1e-3)


def in_float64(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with weights in double precision."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    held = [(onnx.numpy_helper.to_array(t).astype(np.float64), t.name) for t in proto.graph.initializer]
    del wide.graph.initializer[:]
    wide.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for a, n in held)
    return wide


HEAVY = "a = Conv<pads=[1,1,1,1]>(x, h0) b = Conv<pads=[1,1,1,1]>(a, h1) y = MaxPool<kernel_shape=[4,4]>(b)"
ALONE = {
    "several tensors leave": (LIGHT + "q = ReduceMean<axes=[2,3]>(r) y = Flatten(s)", "y, q", {}),
    "a skip over the small maps": (LIGHT + "k = Conv(r, w3) y = GlobalAveragePool(k)", "y, s", {"w3": (48, 48, 1, 1)}),
    "many multiplications": (HEAVY, "y", {"h0": (48, 3, 3, 3), "h1": (48, 48, 3, 3)}),
    "rows are mixed": ("a = Conv(x, w0, b0) c = ReduceMean<axes=[0]>(a) e = Sub(a, c) y = Conv(e, w2)", "y", {}),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_is_left_alone(name: str) -> None:
    body, outputs, shapes = ALONE[name]
    assert not pieces(rewritten(model(6, body, outputs, **shapes)))


def test_memory_that_is_kept_between_runs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image has 2.08 MB of channels, of which the next layer makes 0.52 MB."""
    monkeypatch.undo()
    assert [len(pieces(rewritten(model(rows, LIGHT + "y = Relu(s)")))) for rows in (12, 13)] == [0, 1]


def test_a_few_images_are_left_alone() -> None:
    assert not pieces(rewritten(model(4, LIGHT + "y = Relu(s)")))


def test_tensors_that_somebody_reads_stay_outside() -> None:
    proto, x = model(6, LIGHT + "y = Relu(s)"), images(6)
    made, graph = session(proto, "y", "r")
    assert not pieces(graph)
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": x}, anchors))
    a = ReferenceEvaluator(model(6, "a = Conv(x, w0, b0) y = Clip(a, low, high)")).run(None, {"x": x})[0]
    np.testing.assert_allclose(anchors["r"], a, rtol=1e-4, atol=1e-4)
