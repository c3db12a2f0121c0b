"""Weights that a program reads as they are stand in memory once; the host's new ones leave the device's alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart

from ..platforms import ON_CPUS

pytestmark = ON_CPUS

SIZE = 128
W = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(2, SIZE)).astype(np.float32)


Session = tuple[popart.InferenceSession, dict[str, np.ndarray], popart.PyStepIO]


def session(path: Path, op: str = "MatMul", constant: bool = False, **attributes: int) -> Session:
    """A session of one product of data with the weights, its anchors and what it is fed."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, SIZE]) for n in "xy")
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(W, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), path)
    options = popart.SessionOptions()
    options.constantWeights = constant
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.InferenceSession(str(path), flow, device, userOptions=options)
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    return made, anchors, popart.PyStepIO({"x": X}, anchors)


def test_the_device_reads_the_memory_the_file_was_read_into(tmp_path: Path) -> None:
    made, anchors, stepio = session(tmp_path / "m.onnx")
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], X @ W, rtol=1e-4, atol=1e-4)
    assert made._engine is not None
    held = made._parts.weights.copy["w"]
    assert any(np.shares_memory(np.asarray(a), held) for a in made._engine.fixed)


def test_new_weights_reach_the_device_only_when_sent(tmp_path: Path) -> None:
    made, anchors, stepio = session(tmp_path / "m.onnx")
    mine = W * 2
    made.writeWeights(popart.PyWeightsIO({"w": mine}))
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], X @ W, rtol=1e-4, atol=1e-4)
    made.weightsFromHost()
    mine[...] = 0
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], X @ (W * 2), rtol=1e-4, atol=1e-4)


def test_the_model_is_written_whole_over_the_file_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    made, anchors, stepio = session(path)
    before = onnx.load(path)
    made.modelToHost(str(path))
    assert onnx.load(path) == before
    path.write_bytes(b"")
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], X @ W, rtol=1e-4, atol=1e-4)


def turned_session(path: Path, constant: bool = False) -> Session:
    """A session whose weight is transposed before it is read."""
    return session(path, "Gemm", constant, transB=1)


def test_a_weight_in_another_order_stands_in_memory_once(tmp_path: Path) -> None:
    made, anchors, stepio = turned_session(tmp_path / "m.onnx")
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], X @ W.T, rtol=1e-4, atol=1e-4)
    assert made._engine is not None
    host = made._parts.weights.copy["w"]
    np.testing.assert_array_equal(host, W)
    assert any(np.shares_memory(np.asarray(a), host) for a in made._engine.fixed)
    assert made._parts.prepared.source.weights["w"] is host


def test_what_was_sent_can_be_read_written_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    made, anchors, stepio = turned_session(path)
    made.weightsToHost()
    read = np.empty_like(W)
    made.readWeights(popart.PyWeightsIO({"w": read}))
    np.testing.assert_array_equal(read, W)
    made.modelToHost(str(tmp_path / "saved.onnx"))
    assert onnx.load(tmp_path / "saved.onnx") == onnx.load(path)
    made.writeWeights(popart.PyWeightsIO({"w": W * 2}))
    made.weightsFromHost()
    made.run(stepio)
    np.testing.assert_allclose(anchors["y"], X @ (W.T * 2), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(made._parts.prepared.source.weights["w"], W)  # the model itself is as it was read
    made.modelToHost(str(tmp_path / "doubled.onnx"))
    (stored,) = onnx.load(tmp_path / "doubled.onnx").graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(stored), W * 2)


def test_constants_are_saved_from_there(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    made, _, stepio = turned_session(path, constant=True)
    made.run(stepio)
    made.modelToHost(str(tmp_path / "saved.onnx"))
    assert onnx.load(tmp_path / "saved.onnx") == onnx.load(path)


def test_the_kernel_of_a_normalised_convolution_stands_in_memory_once(tmp_path: Path) -> None:
    rng, channels = np.random.default_rng(2), 256
    kernel = rng.normal(size=(channels, channels, 1, 1)).astype(np.float32) / 16
    statistics = {n: rng.uniform(0.5, 2, channels).astype(np.float32) for n in ("scale", "shift", "mean", "var")}
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, channels, 2, 2]) for n in "xy")
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *statistics], ["y"]),
    ]
    given = [numpy_helper.from_array(v, n) for n, v in {"k": kernel, **statistics}.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], given), opset_imports=[helper.make_opsetid("", 11)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx")
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.InferenceSession(str(tmp_path / "m.onnx"), flow, device)
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    fed = rng.normal(size=(1, channels, 2, 2)).astype(np.float32)
    made.run(popart.PyStepIO({"x": fed}, anchors))
    product = np.einsum("oi,nihw->nohw", kernel[:, :, 0, 0].astype(np.float64), fed)
    scale, shift, mean, var = (v.astype(np.float64)[:, None, None] for v in statistics.values())
    expected = (product - mean) / np.sqrt(var + 1e-5) * scale + shift
    np.testing.assert_allclose(anchors["y"], expected, rtol=1e-4, atol=1e-4)
    host = made._parts.weights.copy["k"]
    np.testing.assert_array_equal(host, kernel)
    assert made._engine is not None
    assert any(np.shares_memory(np.asarray(a), host) for a in made._engine.fixed)
