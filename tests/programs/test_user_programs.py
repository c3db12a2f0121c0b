"""Programs as users of PopART write them, where they once went wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import popart_jax as popart

X2 = [helper.make_tensor_value_info("x", 1, [2])]
Y2 = [helper.make_tensor_value_info("y", 1, [2])]


def _device() -> popart.DeviceInfo:
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})


def _infer(proto: bytes, out: str, **options) -> popart.InferenceSession:
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(proto, flow, _device(), **options)
    session.prepareDevice()
    return session


def _train(
    proto: str | bytes, loss: str, anchors: list[str], batches: int = 1, rate: float = 1.0
) -> popart.TrainingSession:
    flow = popart.DataFlow(batches, {a: popart.AnchorReturnType("All") for a in anchors})
    session = popart.TrainingSession(proto, flow, loss, popart.ConstSGD(rate), _device())
    session.prepareDevice()
    session.weightsFromHost()
    return session


def _run(session, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return anchors


def _sum(builder: popart.Builder, value: str) -> str:
    return builder.aiGraphcore.identityloss([value], reduction=popart.ReductionType.Sum)


def _onnx(nodes, inputs=X2, outputs=Y2, initializers=()) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=4).SerializeToString()


@pytest.mark.parametrize("hands_through", [False, True])
def test_declared_inputs_of_branches_are_the_enclosing_tensors(hands_through):
    builder = popart.Builder()
    flag = builder.addInputTensor(popart.TensorInfo("BOOL", []), "flag")
    w = builder.addInitializedInputTensor(np.full(2, 3, np.float32), "w")
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    then, other = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    for branch in (then, other):
        branch.addInputTensorFromParentGraph(w)
        branch.addInputTensorFromParentGraph(x)
    then.addOutputTensor(w if hands_through else then.aiOnnx.mul([w, x]))
    other.addOutputTensor(x if hands_through else other.aiOnnx.sub([x, w]))
    out = builder.aiOnnx.logical_if([flag], 1, other, then)[0]
    gradient = f"Gradient___{w}"
    loss = _sum(builder, out)
    session = _train(builder.getModelProto(), loss, [out, gradient], rate=1e-20)
    data = np.array([1, 2], np.float32)
    yes, no = (_run(session, flag=np.array(f), x=data) for f in (True, False))
    if hands_through:
        assert yes[out].tolist() == [3, 3]
        assert yes[gradient].tolist() == [1, 1]
        assert no[out].tolist() == [1, 2]
        assert no[gradient].tolist() == [0, 0]
    else:
        assert yes[out].tolist() == [3, 6]
        assert yes[gradient].tolist() == [1, 2]
        assert no[out].tolist() == [-2, -1]
        assert no[gradient].tolist() == [-1, -1]


def test_branch_inside_a_loop_body_declares_tensors_of_two_levels():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    trips = builder.aiOnnx.constant(np.array(4, np.int64))
    body = builder.createSubgraphBuilder()
    i = body.addInputTensor(popart.TensorInfo("INT64", []))
    going = body.addInputTensor(popart.TensorInfo("BOOL", []))
    v = body.addUntypedInputTensor()
    then, other = body.createSubgraphBuilder(), body.createSubgraphBuilder()
    for branch in (then, other):
        branch.addInputTensorFromParentGraph(v)
        branch.addInputTensorFromParentGraph(x)
    then.addOutputTensor(then.aiOnnx.add([v, x]))
    other.addOutputTensor(other.aiOnnx.mul([v, x]))
    early = body.aiOnnx.less([i, body.aiOnnx.constant(np.array(2, np.int64))])
    body.addOutputTensor(going)
    body.addOutputTensor(body.aiOnnx.logical_if([early], 1, other, then)[0])
    out = builder.aiOnnx.loop([trips, "", x], 1, body)[0]
    session = _infer(builder.getModelProto(), out)
    assert _run(session, x=np.array([1, 2], np.float32))[out].tolist() == [3, 24]


@pytest.mark.parametrize("weight_first", [False, True])
def test_loop_body_declares_a_weight_of_the_enclosing_graph(weight_first):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    w = builder.addInitializedInputTensor(np.float32([2, 3]), "w")
    trips = builder.aiOnnx.constant(np.array(3, np.int64))
    body = builder.createSubgraphBuilder()
    if weight_first:
        body.addInputTensorFromParentGraph(w)
    body.addInputTensor(popart.TensorInfo("INT64", []))
    going = body.addInputTensor(popart.TensorInfo("BOOL", []))
    v = body.addUntypedInputTensor()
    if not weight_first:
        body.addInputTensorFromParentGraph(w)
    body.addOutputTensor(going)
    body.addOutputTensor(body.aiOnnx.mul([v, w]))
    out = builder.aiOnnx.loop([trips, "", x], 1, body)[0]
    session = _infer(builder.getModelProto(), out)
    assert _run(session, x=np.array([1, 2], np.float32))[out].tolist() == [8, 54]


@pytest.mark.parametrize("shape", [(2, 2), (3,), (1,), ()])
def test_half_constants(shape):
    builder = popart.Builder()
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.float16)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", list(shape)), "x")
    out = builder.aiOnnx.add([x, builder.aiOnnx.constant(values)])
    session = _infer(builder.getModelProto(), out)
    result = _run(session, x=np.ones(shape, np.float16))[out]
    assert result.dtype == np.float16
    assert np.array_equal(result, values + 1)


def test_external_data_at_an_absolute_path(tmp_path: Path):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    w = builder.addInitializedInputTensor(np.full(2, 3, np.float32), "w")
    out = builder.aiOnnx.mul([x, w])
    loss = _sum(builder, out)
    data, saved = tmp_path / "w.bin", str(tmp_path / "model.onnx")
    builder.saveInitializersExternally([w], str(data))
    builder.saveModelProto(saved)
    for proto in (saved, popart.Builder(saved).getModelProto(), popart.GraphTransformer(saved).getModelProto()):
        session = _train(proto, loss, [out])
        assert _run(session, x=np.ones(2, np.float32))[out].tolist() == [3, 3]
    session.modelToHost(str(tmp_path / "trained.onnx"))
    assert np.fromfile(data, np.float32).tolist() == [2, 2]
    data.unlink()
    for load in (popart.Builder, popart.GraphTransformer):
        with pytest.raises(RuntimeError, match="doesn't exist or is not accessible"):
            load(saved)


def test_host_type_of_a_64_bit_input():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("INT64", [2]), "x")
    out = builder.aiOnnx.neg([x])
    session = _infer(builder.getModelProto(), out)
    assert _run(session, x=np.array([1, 2], np.int64))[out].dtype == np.int64
    with pytest.raises(popart.popart_runtime_error, match="Type discrepancy for tensor x"):
        _run(session, x=np.array([1, 2], np.int32))


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (onnx.TensorProto(name="w", data_type=1, dims=[5], float_data=[1, 2]), "'w' of shape .5. needs 5 elements"),
        (onnx.TensorProto(name="w", data_type=1, dims=[2]), "'w' of shape .2. needs 2 elements, but holds 0"),
        (onnx.TensorProto(name="w", data_type=1, dims=[2], raw_data=b"abcd"), "needs 2 elements, but holds 1"),
        (onnx.TensorProto(name="w", data_type=1, dims=[-2], float_data=[1, 2]), "'w' has the invalid shape"),
        (onnx.TensorProto(name="w", data_type=999, dims=[2], float_data=[1, 2]), "'w' has the unknown data type 999"),
    ],
)
def test_initializers_that_contradict_themselves(tensor, text):
    proto = _onnx([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor])
    with pytest.raises(popart.popart_exception, match=text):
        _infer(proto, "y")


def test_a_tensor_made_twice():
    proto = _onnx([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])])
    with pytest.raises(popart.popart_exception, match="'y' is redeclared"):
        _infer(proto, "y")


def test_constants_that_the_device_can_not_hold():
    wide = [helper.make_tensor("w", 7, [1], [1 << 40])]
    numbers = [helper.make_tensor_value_info("x", 7, [1])]
    proto = _onnx([helper.make_node("Add", ["x", "w"], ["y"])], numbers, Y2, wide)
    with pytest.raises(popart.popart_exception, match="'w' of type int64 holds values beyond int32"):
        _infer(proto, "y")
    proto = _onnx([helper.make_node("Identity", ["w"], ["y"])], numbers, Y2, wide)
    with pytest.raises(popart.popart_exception, match="can't be anchored"):
        _infer(proto, "y")
    bounds = [helper.make_tensor("start", 7, [1], [0]), helper.make_tensor("end", 7, [1], [2**63 - 1])]
    session = _infer(_onnx([helper.make_node("Slice", ["x", "start", "end"], ["y"])], initializers=bounds), "y")
    assert _run(session, x=np.array([1, 2], np.float32))["y"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("output_channels", "output channels dim 6. output_channels"),
        ("input_channels", "input channels dim 2. input_channels"),
        ("reducing_dim", "reducing dimension 3. reducing_dim"),
    ],
)
def test_serialisation_factor_that_does_not_divide(mode, words):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]), "x")
    w = builder.addInitializedInputTensor(np.ones((3, 6), np.float32), "w")
    out = builder.aiOnnx.matmul([x, w])
    builder.setSerializeMatMul({out}, mode, 4)
    text = f"Invalid serialisation factor 4 for {words} dim should be a multiple of the serialisation factor "
    with pytest.raises(popart.popart_exception) as caught:
        _infer(builder.getModelProto(), out)
    assert caught.value.args[0] == text


@pytest.mark.parametrize("method", ["matmul", "pow", "sub"])
def test_types_are_never_mixed(method):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]), "x")
    y = builder.addInputTensor(popart.TensorInfo("FLOAT16", [2, 2]), "y")
    out = getattr(builder.aiOnnx, method)([x, y])
    with pytest.raises(popart.popart_exception, match="FLOAT and FLOAT16"):
        _infer(builder.getModelProto(), out)


def test_the_first_version_of_scan_does_not_run():
    builder = popart.Builder(opsets={"ai.onnx": 8, "ai.graphcore": 1})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 2, 3]), "x")
    body = builder.createSubgraphBuilder()
    row = body.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    body.addOutputTensor(body.aiOnnx.relu([row]))
    out = builder.aiOnnxOpset8.scan(["", x], 1, body, 1)[0]
    with pytest.raises(popart.popart_exception, match="the ONNX spec stipulates that a"):
        _infer(builder.getModelProto(), out)


def _broken_feeds(out: str):
    read_only = np.zeros((2, 2), np.float32)
    read_only.flags.writeable = False
    good, place = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    yield {"x": np.ones((2, 2), np.int32)}, {out: place}
    yield {}, {out: place}
    yield {"x": np.ones(3, np.float32)}, {out: place}
    yield {"x": good}, {}
    yield {"x": good}, {out: np.zeros(3, np.float32)}
    yield {"x": good}, {out: read_only}


def test_weights_survive_a_failed_run():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    w = builder.addInitializedInputTensor(np.zeros(2, np.float32), "w")
    out = builder.aiOnnx.mul([x, w])
    loss = _sum(builder, out)
    session = _train(builder.getModelProto(), loss, [out], batches=2)

    def weights() -> list[float]:
        held = np.zeros(2, np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({w: held}))
        return held.tolist()

    _run(session, x=np.ones((2, 2), np.float32))
    assert weights() == [-2, -2]
    for inputs, outputs in _broken_feeds(out):
        with pytest.raises(popart.popart_exception):
            session.run(popart.PyStepIO(inputs, outputs))
        assert weights() == [-2, -2]
    _run(session, x=np.ones((2, 2), np.float32))
    assert weights() == [-4, -4]
