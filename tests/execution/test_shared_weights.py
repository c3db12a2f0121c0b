"""Weights that a program reads as they are stand in memory once; the host's new ones leave the device's alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart

SIZE = 128
W = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(2, SIZE)).astype(np.float32)


def session(path: Path) -> tuple[popart.InferenceSession, dict[str, np.ndarray], popart.PyStepIO]:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, SIZE]) for n in "xy")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(W, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), path)
    options = popart.SessionOptions()
    options.constantWeights = False
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
    held = made._weights.copy["w"]
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
