"""Behaviour that the supplement states: pruning, types at prepareDevice, random state, counts of loss scaling."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import popart_jax as popart

pytestmark = pytest.mark.usefixtures("popart_names")
All = popart.AnchorReturnType("All")
CPU = popart.DeviceManager().createCpuDevice


def run(session: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return anchors


def train(
    b: popart.Builder, loss: str, anchors: list[str], optimizer: Any = None, options: Any = None, **more: Any
) -> Any:
    flow = popart.DataFlow(1, dict.fromkeys(anchors, All))
    optimizer = optimizer or popart.ConstSGD(0.1)
    return popart.TrainingSession(b.getModelProto(), flow, loss, optimizer, CPU(), userOptions=options, **more)


def test_a_model_without_weights_trains_for_the_gradient_of_its_input():
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2, 2], "x")
    loss = b.aiGraphcore.l1loss([x], 0.5)
    data = np.array([[1, -2], [0, 3]], np.float32)
    np.testing.assert_allclose(run(train(b, loss, ["Gradient___x"]), x=data)["Gradient___x"], np.sign(data) * 0.5 / 4)


def test_an_anchored_identity_of_a_constant_is_computed():
    b = popart.Builder()
    value = np.arange(6, dtype=np.int32).reshape(2, 3).T
    out = b.aiOnnx.identity([b.aiOnnx.constant(value)])
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), CPU())
    np.testing.assert_array_equal(run(session)[out], value)


def test_only_the_gradient_of_the_loss_is_nothing_to_compute():
    b = popart.Builder()
    loss = b.aiGraphcore.l1loss([b.addInputTensor("FLOAT", [2], "x")], 1.0)
    with pytest.raises(popart.popart_exception, match=r"^All operations in the main graph were pruned, nothing to"):
        train(b, loss, ["Gradient___" + loss])


REWRITTEN = {"Cosh": "CoshOp"} | {f"Random{kind}Like": f"Random{kind}LikeOpPattern" for kind in ("Normal", "Uniform")}


@pytest.mark.parametrize(("op", "pattern"), REWRITTEN.items())
def test_an_operator_that_a_pattern_replaces_is_trained_through_only_with_it(op, pattern):
    b = popart.Builder(opsets={"ai.onnx": 9, "ai.onnx.ml": 1, "ai.graphcore": 1})
    w = b.addInitializedInputTensor(np.ones(2, np.float32), "w")
    kept = b.aiOnnx.mul([w, w])
    loss = b.aiGraphcore.identityloss([b.aiOnnx.add([getattr(b.aiOnnx, op.lower())([kept]), kept])])
    run(train(b, loss, [loss]))
    off = popart.Patterns(popart.PatternsLevel.NoPatterns)
    off.enableRuntimeAsserts(False)
    with pytest.raises(popart.popart_exception) as caught:
        train(b, loss, [loss], patterns=off)
    assert str(caught.value) == f"{op}Op should be removed by pattern '{pattern}' before call to {op}Op::getGradOps"


def called(b: popart.Builder, body: popart.Builder, x: str, name: str) -> str:
    body.setGraphName(name)
    return b.aiGraphcore.call([x], 1, body)[0]


def chosen(b: popart.Builder, body: popart.Builder, x: str, name: str) -> str:
    flag = b.aiOnnx.constant(np.array(True))
    return b.aiOnnx.logical_if([flag], 1, body, body)[0]


@pytest.mark.parametrize("around", [called, chosen])
@pytest.mark.parametrize(("make", "text"), [
    (lambda onnx, x: onnx.pad([x], [1, 1], "reflect"),
     'At this time, PopART does not support PadGradOp when mode is not "constant".'),
    (lambda onnx, x: onnx.identity([onnx.greater([x, x])]),
     "PopART does not have a valid grad op corresponding to GreaterOp"),
    (lambda onnx, x: onnx.cast([onnx.greater([x, x])], "FLOAT"), ""),
])  # fmt: skip
def test_what_has_no_gradient_is_refused_in_bodies_too(around, make, text):
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [4], "x")
    body = b.createSubgraphBuilder()
    inner = body.addInputTensor(popart.TensorInfo("FLOAT", [4])) if around is called else x
    if around is chosen:
        body.addInputTensorFromParentGraph(x)
    body.addOutputTensor(make(body.aiOnnx, inner))
    loss = b.aiGraphcore.identityloss([around(b, body, x, "body")])
    if not text:
        train(b, loss, [loss])
        return
    with pytest.raises(popart.popart_exception) as caught:
        train(b, loss, [loss])
    assert caught.value.args[0] == text


@pytest.mark.parametrize("shape", [[1], [1, 1], [1, 1, 1]])
def test_a_loss_of_one_element_in_any_shape(shape):
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2, 3], "x")
    w = b.addInitializedInputTensor(np.ones((2, 3), np.float32), "w")
    loss = b.aiGraphcore.reshape(b.aiOnnx.reducesum([b.aiOnnx.mul([x, w])], axes=[0, 1]), shape)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = run(train(b, loss, [loss, "Gradient___w"]), x=data)
    np.testing.assert_allclose(found[loss].reshape(()), 15)
    np.testing.assert_allclose(found["Gradient___w"], data)


def test_doubles_are_refused_when_the_device_is_prepared():
    b = popart.Builder()
    out = b.aiOnnx.relu([b.addInputTensor("DOUBLE", [2])])
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), CPU())
    with pytest.raises(popart.popart_exception) as caught:
        session.prepareDevice()
    assert caught.value.args[0] == "The data type DOUBLE is not supported in Poplar"


@pytest.mark.parametrize("name", ["DOUBLE", "BFLOAT16", "COMPLEX64"])
@pytest.mark.parametrize("cast", [False, True])
def test_sessions_of_popart_refuse_what_an_ipu_lacks_also_between_casts(name, cast):
    b = popart.Builder()
    given = b.addInputTensor("FLOAT" if cast else name, [2])
    out = b.aiOnnx.relu([b.aiOnnx.cast([given], name) if cast else given])
    options = popart.SessionOptions()
    options.engineOptions = {"popart_jax.strict": "true"}
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), CPU(), userOptions=options)
    with pytest.raises(popart.popart_exception) as caught:
        session.prepareDevice()
    assert caught.value.args[0] == f"The data type {name} is not supported in Poplar"


def test_what_follows_from_indices_has_32_bits_and_what_follows_from_sizes_64():
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2, 3])
    flag = b.addInputTensor("BOOL", [2, 1])
    index, sizes = b.aiOnnx.argmax([x], 1), b.aiOnnx.shape([x])
    narrow = [
        b.reshape_const(b.aiOnnx, [index], [-1]),
        b.aiOnnx.transpose([index]),
        b.aiOnnx.where([flag, index, index]),
    ]
    wide = [b.aiOnnx.neg([sizes]), b.aiOnnx.concat([sizes, sizes], 0), b.aiOnnx.cast([index], "INT64")]
    session = popart.InferenceSession(
        b.getModelProto(), popart.DataFlow(1, dict.fromkeys([index, *narrow, *wide], All)), CPU()
    )
    session.prepareDevice()
    found = {name: array.dtype for name, array in session.initAnchorArrays().items()}
    assert [found[t] for t in (index, *narrow)] == [np.int32] * 4
    assert [found[t] for t in wide] == [np.int64] * 3
    assert session.getInfo(narrow[0]).data_type() == "INT32"


def test_sizes_may_be_doubles_on_the_host():
    b = popart.Builder()
    given = b.addInputTensor("FLOAT", [2, 3])
    size = b.aiOnnx.cast([b.aiOnnx.cast([b.aiOnnx.shape([given])], "DOUBLE")], "INT64")
    out = b.aiOnnx.reshape([given, size])
    options = popart.SessionOptions()
    options.engineOptions = {"popart_jax.strict": "true"}
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), CPU(), userOptions=options)
    session.prepareDevice()
    assert session.getInfo(out).shape() == [2, 3]


def test_an_operator_that_checks_its_own_type_comes_first():
    b = popart.Builder()
    out = b.aiOnnx.randomuniformlike([b.addInputTensor("DOUBLE", [2])])
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), CPU())
    assert caught.value.args[0] == "ai.onnx.RandomUniformLike:1 : Unsupported data type requested: DOUBLE"


def test_sparse_constants_are_refused_before_anything_is_pruned():
    values = helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [1.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", onnx.TensorProto.INT64, [1], [0]), [4])
    nodes = [
        helper.make_node("Constant", [], ["unused"], sparse_value=sparse),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6).SerializeToString()
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(proto, popart.DataFlow(1, {"y": All}), CPU())
    assert caught.value.args[0] == "The Constant op attribute 'sparse_value' is not supported."


SEEDED = """
import hashlib, pickle, random
import numpy as np
import popart_jax as popart
state = lambda: hashlib.sha256(pickle.dumps((np.random.get_state(), random.getstate()))).hexdigest()
np.random.seed(1)
first = state()
b = popart.Builder()
x = b.addInputTensor("FLOAT", [2, 2])
w = b.addInitializedInputTensor(np.ones((2, 2), np.float32))
loss = b.aiGraphcore.identityloss([b.aiOnnx.matmul([x, w])])
device = popart.DeviceManager().createCpuDevice()
s = popart.TrainingSession(b.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1), device)
s.prepareDevice()
s.weightsFromHost()
s.run(popart.PyStepIO({x: np.ones((2, 2), np.float32)}, s.initAnchorArrays()))
assert state() == first
"""


@pytest.mark.processes
def test_the_first_session_draws_no_random_numbers_of_the_program():
    subprocess.run([sys.executable, "-c", SEEDED], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def halves(edge: float, factor: int = 1) -> tuple[popart.Builder, str, Any, Any]:
    """loss = sum(x * w) in FLOAT16, its gradients tracked."""
    b = popart.Builder()
    x = b.addInputTensor("FLOAT16", [4], "x")
    w = b.addInitializedInputTensor(np.ones(4, np.float16), "w")
    loss = b.aiGraphcore.identityloss([b.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    options = popart.SessionOptions()
    scaling = options.automaticLossScalingSettings
    scaling.enabled, scaling.binEdgeLocation = True, edge
    scaling.toTrackTensors = ["w"]
    scaling.gradientTensorTrackingMethod = popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    if factor > 1:
        options.enableGradientAccumulation, options.accumulationFactor = True, factor
    return b, loss, popart.SGD({"lossScaling": (1, False)}), options


def test_counts_of_loss_scaling_can_be_anchored():
    b, loss, sgd, options = halves(2 / 65504)
    names = ["Gradient___w_statistics", "summedHistograms", "summedCastedHistograms",
             "UpdatedVar___lossScaleUpdateFactor"]  # fmt: skip
    found = run(train(b, loss, names, sgd, options), x=np.array([1, 1, 1, 8], np.float16))
    for name in names[:2]:
        np.testing.assert_array_equal(found[name], np.array([3, 1], np.uint32))
        assert found[name].dtype == np.uint32
    np.testing.assert_array_equal(found[names[2]], np.array([3, 1], np.float32))
    assert found[names[3]] == 0.5  # one large element is more than the default threshold allows


def test_counts_run_over_the_micro_batches_of_a_batch():
    b, loss, sgd, options = halves(2 / 65504, factor=2)
    session = train(b, loss, ["Accum___autoLossScaleStats"], sgd, options)
    data = np.array([[1, 1, 1, 8], [8, 8, 1, 1]], np.float16)
    np.testing.assert_array_equal(run(session, x=data)["Accum___autoLossScaleStats"], [[3, 1], [5, 3]])


def test_the_edge_is_rounded_to_the_type_of_the_gradient():
    b, loss, sgd, options = halves(1e-20)
    found = run(train(b, loss, ["summedHistograms"], sgd, options), x=np.zeros(4, np.float16))
    np.testing.assert_array_equal(found["summedHistograms"], [0, 4])


def lstm(build: Callable[[popart.Builder, dict[str, np.ndarray]], str], training: bool) -> list[np.ndarray]:
    b, fed = popart.Builder(), {}
    out = build(b, fed)
    if not training:
        session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), CPU())
        return list(run(session, **fed).values())
    loss = b.aiGraphcore.identityloss([out])
    first = next(iter(fed))
    found = run(train(b, loss, [out, "Gradient___" + first]), **fed)
    return [found[out], found["Gradient___" + first]]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
def test_both_lstms_give_the_same_bits(training, lengths):
    rng = np.random.default_rng(5)
    steps, batch, size, hidden = 5, 2, 3, 7
    x, w, r, bias, h, c = (
        rng.random(shape, np.float32)
        for shape in ((steps, batch, size), (1, 4 * hidden, size), (1, 4 * hidden, hidden), (1, 8 * hidden),
                      (1, batch, hidden), (1, batch, hidden))
    )  # fmt: skip
    gates = [2, 0, 3, 1]  # f, i, c, o of i, o, f, c
    own = np.stack([np.concatenate([m[0, g * hidden : (g + 1) * hidden].T for m in (w, r)]) for g in gates])
    halves = bias.reshape(2, 4, hidden)

    def feed(b: popart.Builder, fed: dict[str, np.ndarray], array: np.ndarray) -> str:
        name = b.addInputTensor(popart.TensorInfo(array), "t")
        fed[name] = array
        return name

    def onnx_lstm(b, fed):
        names = [feed(b, fed, a) for a in (x, w, r, bias)]
        names.append(feed(b, fed, np.full(batch, steps, np.int32)) if lengths else "")
        return b.aiOnnx.lstm([*names, feed(b, fed, h), feed(b, fed, c)], 3)[0]

    def own_lstm(b, fed):
        arrays = (x, own, halves[0, gates] + halves[1, gates], np.concatenate([h, c]))
        return b.aiGraphcore.lstm([feed(b, fed, np.ascontiguousarray(a)) for a in arrays])[0]

    for one, other in zip(lstm(onnx_lstm, training), lstm(own_lstm, training), strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)


def test_a_loss_of_whole_numbers_has_gradients():
    b = popart.Builder()
    shape, onnx = popart.TensorInfo("INT32", [2, 3]), b.aiOnnx
    x, y = (b.addInputTensor(shape, name) for name in "xy")
    rows = onnx.gather([onnx.mul([x, y]), onnx.constant(np.array([1, 1], np.int32))], axis=0)
    loss = b.aiGraphcore.identityloss(
        [onnx.sub([rows, onnx.constant(np.array(4, np.int32))])], popart.ReductionType.Sum
    )
    names = [loss, f"Gradient___{loss}", f"Gradient___{rows}", "Gradient___x", "Gradient___y"]
    one, two = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([[7, 8, 9], [1, -2, 3]], np.int32)
    found = run(train(b, loss, names, popart.SGD({"lossScaling": (2.0, True)})), x=one, y=two)
    assert all(value.dtype == np.int32 for value in found.values())
    expected = [2 * (one * two)[1].sum() - 24, 2, np.full((2, 3), 2), 4 * two * [[0], [1]], 4 * one * [[0], [1]]]
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_floats_that_are_cast_to_whole_numbers_have_gradients(kind):
    b = popart.Builder()
    x = b.addInputTensor(popart.TensorInfo(np.dtype(kind).name, [2, 3]), "x")
    w = b.addInitializedInputTensor(np.ones((2, 3), kind), "w")
    cast = b.aiOnnx.cast([b.aiOnnx.mul([x, w])], "INT32")
    tripled = b.aiOnnx.mul([cast, b.aiOnnx.constant(np.array(3, np.int32))])
    loss = b.aiGraphcore.identityloss([tripled], popart.ReductionType.Sum)
    data = np.array([[0, 1, 2], [3, 4, 5.75]], kind)
    session = train(b, loss, ["Gradient___" + cast, "Gradient___x", "Gradient___w"], popart.ConstSGD(0.5))
    found = run(session, x=data)
    np.testing.assert_array_equal(found["Gradient___" + cast], np.full((2, 3), 3, np.int32))
    for name, value in (("x", np.full((2, 3), 3)), ("w", 3 * data)):
        np.testing.assert_array_equal(found["Gradient___" + name], value.astype(kind))
    session.weightsToHost()
    weights = {"w": np.zeros((2, 3), kind)}
    session.readWeights(popart.PyWeightsIO(weights))
    np.testing.assert_array_equal(weights["w"], 1 - 1.5 * data)


@pytest.mark.parametrize("mode", popart.VariableRetrievalMode.__members__.values())
def test_a_variable_of_which_the_host_gets_several_values_is_no_constant(mode):
    b = popart.Builder()
    groups = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.All, 0), mode)
    w = b.addInitializedInputTensor(np.ones(2, np.float32), groups, "w")
    out = b.aiOnnx.add([b.addInputTensor("FLOAT", [2], "x"), w])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), device, userOptions=options)
    session.prepareDevice()
    written = popart.PyWeightsIO({"w": np.full(2, 5, np.float32)})
    if mode is not popart.VariableRetrievalMode.AllReplicas:
        with pytest.raises(popart.popart_runtime_error, match=r"^Cannot call writeWeights when constantWeights is set"):
            session.writeWeights(written)
        return
    session.writeWeights(written)
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.zeros((2, 2), np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[out], np.full((2, 2), 5))


@pytest.mark.parametrize(("stride", "of_replica"), [(1, [0, 0, 1, 1]), (2, [0, 1, 0, 1])])
def test_groups_given_by_stride_reach_the_session(stride, of_replica):
    b = popart.Builder()
    groups = popart.VariableSettings(stride, 2, popart.VariableRetrievalMode.OnePerGroup)
    values = np.array([[1, 2], [3, 4]], np.float32)
    out = b.aiOnnx.mul([b.addInputTensor("FLOAT", [2], "x"), b.addInitializedInputTensor(values, groups, "w")])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 4
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), device, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    session.run(popart.PyStepIO({"x": data}, anchors))
    np.testing.assert_array_equal(anchors[out], data * values[of_replica])


@pytest.mark.parametrize("name", ["activations", "activation_alpha"])
def test_an_empty_list_that_is_added_to_a_node_is_one_of_any_type(name):
    """The builder can't tell its type and writes a list of whole numbers; the operator reads the list it wants."""
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [3, 1, 2])
    weights = [b.addInitializedInputTensor(np.ones((1, 16, n), np.float32)) for n in (2, 4)]
    outs = b.aiOnnx.lstm([x, *weights], 3, hidden_size=4)
    b.addNodeAttribute(name, [], set(outs))
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {outs[0]: All}), CPU())
    assert session.getInfo(outs[0]).shape() == [3, 1, 1, 4]
