"""Older spellings: a program for each form that the documents of the first releases show, checked against NumPy."""

from __future__ import annotations

import json

import cbor2
import numpy as np
import pytest

from popart_jax import dropin


@pytest.fixture
def popart():
    dropin.install()
    import popart

    yield popart
    dropin.uninstall()


@pytest.fixture
def poponnx():
    dropin.install()
    import poponnx

    yield poponnx
    dropin.uninstall()


RNG = np.random.default_rng(7)
WEIGHT = RNG.normal(size=(3, 4)).astype(np.float32)
DATA = RNG.normal(size=(5, 2, 3)).astype(np.float32)
LABELS = RNG.integers(0, 4, (5, 2)).astype(np.int32)


def classifier(popart, file=None) -> tuple[bytes, str, str, str]:
    """softmax(x @ w): model, input, weight, output."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    w = builder.addInitializedInputTensor(WEIGHT, "w")
    out = builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w])])
    builder.addOutputTensor(out)
    if file is not None:
        builder.saveModelProto(str(file))
    return builder.getModelProto(), x, w, out


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def nll_steps(rate: float, steps: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Summed NLL losses and the weight of SGD, in float64."""
    w, losses = WEIGHT.astype(np.float64), []
    for x, labels in zip(DATA[:steps].astype(np.float64), LABELS, strict=False):
        p = softmax(x @ w)
        losses.append(-np.log(p[[0, 1], labels]).sum())
        w = w - rate * x.T @ (p - np.eye(4)[labels])
    return np.array(losses), w


def labels_info(popart):
    info = popart.InputShapeInfo()
    info.add("labels", popart.TensorInfo("INT32", [2]))
    return info


# -- the names of the first documents under popart


def test_training_session_with_data_feed_and_losses(popart, tmp_path):
    file = tmp_path / "net.onnx"
    _, x, _, out = classifier(popart, file)
    session = popart.TrainingSession(
        str(file),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
        dataFeed=popart.DataFlow(5, {"loss": popart.AnchorReturnType("ALL")}),
        losses=[popart.NllLoss(out, "labels", "loss")],
        optimizer=popart.ConstSGD(0.1),
        inputShapeInfo=labels_info(popart),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.optimizerFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: DATA, "labels": LABELS}, anchors))
    np.testing.assert_allclose(anchors["loss"], nll_steps(0.1)[0], rtol=1e-4)


def test_passes_are_patterns(popart):
    model, x, _, out = classifier(popart)
    session = popart.InferenceSession(
        model,
        dataFeed=popart.DataFlow(1, [out]),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
        passes=popart.Patterns().enablePattern("InPlace", False),
    )
    types = [op["type"] for op in json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]]
    assert not [t for t in types if t.endswith("Inplace")]
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: DATA[0]}, anchors))
    np.testing.assert_allclose(anchors[out], softmax(DATA[0] @ WEIGHT), rtol=1e-5)


def test_update_optimizer_then_optimizer_from_host(popart):
    model, x, w, out = classifier(popart)
    session = popart.TrainingSession(
        model,
        dataFeed=popart.DataFlow(1, {"loss": popart.AnchorReturnType("FINAL")}),
        losses=[popart.NllLoss(out, "labels", "loss")],
        optimizer=popart.SGD(0.1),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
        inputShapeInfo=labels_info(popart),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    weight = WEIGHT.astype(np.float64)
    for step, rate in enumerate([0.1, 0.5, 0.0]):
        session.updateOptimizer(popart.SGD(rate))
        session.optimizerFromHost()
        session.run(popart.PyStepIO({x: DATA[step], "labels": LABELS[step]}, anchors))
        p = softmax(DATA[step] @ weight)
        weight = weight - rate * DATA[step].T @ (p - np.eye(4)[LABELS[step]])
    read = {w: np.empty_like(WEIGHT)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(read))
    np.testing.assert_allclose(read[w], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positional", [True, False])
def test_inference_session(popart, positional):
    model, x, _, out = classifier(popart)
    feed = popart.DataFlow(1, {out: popart.AnchorReturnType("ALL")})
    device = popart.DeviceManager().createCpuDevice()
    if positional:
        session = popart.InferenceSession(model, feed, device)
    else:
        session = popart.InferenceSession(model, deviceInfo=device, dataFeed=feed)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: DATA[0]}, anchors))
    np.testing.assert_allclose(anchors[out], softmax(DATA[0] @ WEIGHT), rtol=1e-5)


def test_losses_given_to_an_inference_session_are_run(popart):
    model, x, _, out = classifier(popart)
    session = popart.InferenceSession(
        model,
        popart.DataFlow(5, {"loss": popart.AnchorReturnType("ALL"), "l1": popart.AnchorReturnType("ALL")}),
        popart.DeviceManager().createCpuDevice(),
        losses=[popart.NllLoss(out, "labels", "loss"), popart.L1Loss(out, "l1", 0.5)],
        inputShapeInfo=labels_info(popart),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: DATA, "labels": LABELS}, anchors))
    p = softmax(DATA @ WEIGHT)
    np.testing.assert_allclose(
        anchors["loss"], [-np.log(q[[0, 1], n]).sum() for q, n in zip(p, LABELS, strict=True)], rtol=1e-4
    )
    np.testing.assert_allclose(anchors["l1"], 0.5 * np.abs(p).sum((1, 2)), rtol=1e-4)


def test_several_losses_are_summed(popart):
    model, x, w, out = classifier(popart)
    session = popart.TrainingSession(
        model,
        popart.DataFlow(1, {"a": popart.AnchorReturnType("ALL")}),
        [popart.IdentityLoss(out, "a"), popart.L1Loss("w", "b", 0.25)],
        popart.ConstSGD(1.0),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: DATA[0]}, session.initAnchorArrays()))
    read = {w: np.empty_like(WEIGHT)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(read))
    # rows of a softmax sum to one, so only the L1 term moves the weight
    np.testing.assert_allclose(read[w], WEIGHT - 0.25 * np.sign(WEIGHT), atol=1e-5)


def test_inputs_from_iterators(popart):
    model, x, _, out = classifier(popart)
    session = popart.InferenceSession(
        model, popart.DataFlow(2, {out: popart.AnchorReturnType("ALL")}), popart.DeviceManager().createCpuDevice()
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO({x: iter(DATA)}, anchors)
    for start in (0, 2):
        session.run(stepio)
        np.testing.assert_allclose(anchors[out], softmax(DATA[start : start + 2] @ WEIGHT), rtol=1e-5)
    with pytest.raises(popart.popart_runtime_error, match="ended"):
        session.run(stepio)


def test_reports_as_json_and_cbor(popart):
    model, x, _, out = classifier(popart)
    session = popart.InferenceSession(
        model,
        popart.DataFlow(1, {out: popart.AnchorReturnType("ALL")}),
        popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472}),
    )
    session.prepareDevice()
    session.run(popart.PyStepIO({x: DATA[0]}, session.initAnchorArrays()))
    assert json.loads(session.getGraphReport())
    assert cbor2.loads(session.getGraphReport(True))
    assert json.loads(session.getExecutionReport())
    assert cbor2.loads(session.getExecutionReport(useCbor=True))


def test_losses_without_their_input(popart):
    model, _, _, out = classifier(popart)
    with pytest.raises(popart.popart_exception, match="labels"):
        popart.TrainingSession(
            model,
            deviceInfo=popart.DeviceManager().createCpuDevice(),
            dataFeed=popart.DataFlow(1, {}),
            losses=[popart.NllLoss(out, "labels", "loss")],
            optimizer=popart.ConstSGD(0.1),
        )
    with pytest.raises(TypeError):
        popart.TrainingSession(
            model,
            deviceInfo=popart.DeviceManager().createCpuDevice(),
            dataFeed=popart.DataFlow(1, {}),
            losses=["loss"],
            optimizer=popart.ConstSGD(0.1),
        )


# -- poponnx


def test_addition_with_operators_on_the_builder(poponnx):
    builder = poponnx.Builder()
    i1 = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [1, 2, 3, 3]))
    i2 = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [1, 2, 3, 3]))
    o = builder.add(i1, i2)
    builder.addOutputTensor(o)
    session = poponnx.Session(builder.getModelProto(), poponnx.DataFlow(5, 1, [o], poponnx.AnchorReturnType.ALL))
    a, b = RNG.normal(size=(2, 5, 1, 2, 3, 3)).astype(np.float32)
    anchors = {o: np.zeros((5, 1, 2, 3, 3))}
    session.infer(poponnx.PyStepIO({i1: a, i2: list(b)}, anchors))
    np.testing.assert_array_equal(anchors[o], a + b)
    with pytest.raises(poponnx.popart_exception, match="losses"):
        session.train(poponnx.PyStepIO({i1: a, i2: b}, anchors))


def test_train_evaluate_infer_share_weights(poponnx):
    builder = poponnx.Builder()
    x = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [2, 3]), "image")
    w = builder.addInitializedInputTensor(WEIGHT, "w")
    out = builder.softmax(builder.matmul(x, w))
    builder.addOutputTensor(out)
    labels = poponnx.InputShapeInfo()
    labels.add("labels", poponnx.TensorInfo("INT32", [2]))
    session = poponnx.Session(
        builder.getModelProto(),
        poponnx.DataFlow(5, 2, ["loss", out], poponnx.AnchorReturnType.ALL),
        [poponnx.NllLoss(out, "labels", "loss")],
        poponnx.ConstSGD(0.1),
        inputShapeInfo=labels,
    )
    anchors = {"loss": np.zeros(5), out: np.zeros((5, 2, 4))}
    feeds = {"image": DATA, "labels": LABELS}
    session.train(poponnx.PyStepIO(feeds, anchors))
    losses, weight = nll_steps(0.1)
    np.testing.assert_allclose(anchors["loss"], losses, rtol=1e-4)
    session.evaluate(poponnx.PyStepIO(feeds, anchors))
    p = softmax(DATA @ weight)
    np.testing.assert_allclose(
        anchors["loss"], [-np.log(q[[0, 1], n]).sum() for q, n in zip(p, LABELS, strict=True)], rtol=1e-4
    )
    session.infer(poponnx.PyStepIO({"image": iter(DATA)}, {out: anchors[out]}))
    np.testing.assert_allclose(anchors[out], p, rtol=1e-3, atol=1e-5)


def test_batch_size_fills_open_dimensions(poponnx):
    import onnx

    infos = [onnx.helper.make_tensor_value_info(n, 1, ["N", 3]) for n in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=4)
    session = poponnx.Session(model.SerializeToString(), poponnx.DataFlow(2, 4, ["y"], poponnx.AnchorReturnType.FINAL))
    assert session.initAnchorArrays()["y"].shape == (4, 3)
    assert poponnx.DataFlow(2, {"y": poponnx.AnchorReturnType("ALL")}).batch_size is None
