"""Sessions train models of any opset: what exporters write today, with what is trained as the user says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart

RNG = np.random.default_rng(6)
X = RNG.normal(size=(4, 3, 6, 6)).astype(np.float32)
LABELS = np.array([0, 1, 2, 1], np.int32)


def network(opset: int) -> onnx.ModelProto:
    """A small classifier as exporters write it: integer initializers, a weight in a Constant node, a scalar."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g(float[4,3,6,6] x) => (float[4,3] y) {{ '
        "a = Conv(x, kernel) b = Relu(a) m = ReduceMean(b, axes) f = Flatten(m) "
        "w = Constant<value = float[4,3] {0.1,0.2,0.3,-0.1,-0.2,-0.3,0.1,-0.2,0.3,0.2,0.2,-0.1}>() "
        "h = MatMul(f, w) s = Mul(h, val_1) y = Add(s, bias) }"
    )
    held = {
        "kernel": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), "axes": np.array([2, 3]),
        "val_1": np.array(2.0, np.float32), "bias": np.zeros(3, np.float32),
    }  # fmt: skip
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in held.items())
    return model


def prepared(builder: popart.Builder, loss: str, **engine: str) -> popart.TrainingSession:
    options = popart.SessionOptions()
    options.engineOptions = {f"popart_jax.{k}": v for k, v in engine.items()}
    session = popart.TrainingSession(
        builder.getModelProto(), loss=loss, dataFlow=popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        optimizer=popart.ConstSGD(0.1), deviceInfo=popart.DeviceManager().createCpuDevice(), userOptions=options,
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    return session


def trained(model: onnx.ModelProto | str, steps: int = 15, **engine: str) -> tuple[popart.TrainingSession, list[float]]:
    given = model if isinstance(model, str) else model.SerializeToString()
    builder = popart.Builder(given)
    (x,), (y,) = builder.getInputTensorIds(), builder.getOutputTensorIds()
    labels = builder.addInputTensor("INT32", [4])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([y], axis=1), labels])
    session = prepared(builder, loss, **engine)
    anchors = session.initAnchorArrays()
    losses = []
    for _ in range(steps):
        session.run(popart.PyStepIO({x: X, labels: LABELS}, anchors))
        losses.append(float(anchors[loss]))
    session.weightsToHost()
    return session, losses


@pytest.mark.parametrize("opset", [18, 20, 22])
def test_training_falls_and_the_file_keeps_its_opset(opset: int, tmp_path: Path) -> None:
    before = network(opset)
    session, losses = trained(before)
    assert losses[-1] < 0.8 * losses[0]
    session.modelToHost(str(tmp_path / "trained.onnx"))
    after = onnx.load(tmp_path / "trained.onnx")
    assert {i.domain: i.version for i in after.opset_import} == {"": opset, "ai.graphcore": 1}
    held = {t.name: onnx.numpy_helper.to_array(t) for t in after.graph.initializer}
    was = {t.name: onnx.numpy_helper.to_array(t) for t in before.graph.initializer}
    moved = {n for n in was if not np.array_equal(held[n], was[n])}
    assert moved == {"kernel", "bias"}  # not the axes, nor the number of a formula
    constant = next(n for n in after.graph.node if n.op_type == "Constant" and n.output[0] == "w")
    value = onnx.numpy_helper.to_array(constant.attribute[0].t)
    assert not np.allclose(value.ravel()[:3], [0.1, 0.2, 0.3])
    served = onnx.ModelProto()
    served.CopyFrom(after)
    del served.graph.node[-2:], served.graph.output[:], served.graph.input[1:], served.opset_import[1:]
    served.graph.output.append(onnx.helper.make_tensor_value_info("y", 1, [4, 3]))
    theirs = np.asarray(onnxruntime.InferenceSession(served.SerializeToString()).run(None, {"x": X})[0])
    assert (theirs.argmax(1) == LABELS).mean() >= 0.5


def test_the_user_says_what_is_trained(tmp_path: Path) -> None:
    before = network(18)
    session, losses = trained(before, trainable="bias")
    assert losses[-1] < losses[0]
    session.modelToHost(str(tmp_path / "trained.onnx"))
    held = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    was = {t.name: onnx.numpy_helper.to_array(t) for t in before.graph.initializer}
    assert {n for n in was if not np.array_equal(held[n], was[n])} == {"bias"}
    with pytest.raises(popart.popart_exception, match="'weight' fits no float weight"):
        trained(before, trainable="weight")


def test_constants_that_the_user_made_are_not_trained(tmp_path: Path) -> None:
    transformer = popart.GraphTransformer(network(18).SerializeToString())
    transformer.convertInitializersToConstants(["kernel", "bias"])
    builder = popart.Builder(transformer.getModelProto())
    y = builder.aiOnnx.add([builder.getOutputTensorIds()[0], builder.aiOnnx.constant(np.ones(3, np.float32))])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    loss, device = builder.aiGraphcore.l1loss([y], 0.1), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": X}, session.initAnchorArrays()))
    session.modelToHost(str(tmp_path / "trained.onnx"))
    before, after = (
        {n.output[0]: onnx.numpy_helper.to_array(n.attribute[0].t) for n in m.graph.node if n.op_type == "Constant"}
        for m in (onnx.load_from_string(builder.getModelProto()), onnx.load(tmp_path / "trained.onnx"))
    )
    assert len(before) == 4
    assert {name for name in before if not np.array_equal(before[name], after[name])} == {"w"}  # the exporter's


@pytest.mark.parametrize(
    ("start", "refusal"),
    [
        (
            "p = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>(x)",
            "`count_include_pad` is not supported",
        ),
        ('p = Pad<mode = "reflect">(x, around)', "does not support PadGradOp"),
    ],
)
def test_what_popart_refuses_is_run_under_our_name_and_refused_on_request(start: str, refusal: str) -> None:
    text = (
        '<ir_version: 4, opset_import: ["": 11]> g(float[4,3,6,6] x) => (float[4,3] y) { '
        "around = Constant<value = int64[8] {0,0,1,1,0,0,1,1}>() " + start + " "
        "m = GlobalAveragePool(p) f = Flatten(m) y = MatMul(f, w) }"
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(RNG.normal(size=(3, 3)).astype(np.float32), "w"))
    _, losses = trained(model)
    assert losses[-1] < losses[0]
    with pytest.raises(popart.popart_exception, match=refusal):
        trained(model, strict="true")
    with pytest.raises(popart.popart_exception, match=r"popart_jax.strict is true or false, got 'maybe'"):
        trained(model, strict="maybe")


@pytest.mark.usefixtures("popart_names")
def test_programs_of_popart_see_what_they_saw() -> None:
    text = (
        '<ir_version: 4, opset_import: ["": 11]> g(float[4,3,6,6] x) => (float[4,3,6,6] y) { '
        "y = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>(x) }"
    )
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    with pytest.raises(popart.popart_exception, match="`count_include_pad` is not supported"):
        popart.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), flow, device)
    _, losses = trained(network(18))  # an opset that PopART never knew
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "body",
    [
        "n = Constant<value = int64 {3}>() s = SplitToSequence<axis = 1>(h, n) y = SequenceAt(s, zero)",
        "a, b = Split<axis = 1>(h) s = SequenceConstruct(a, b) t = SequenceInsert(s, b) y = SequenceAt(t, zero)",
        "a, b = Split<axis = 1>(h) o = Optional(a) y = OptionalGetElement(o)",
    ],
)
def test_weights_before_a_sequence_are_trained(body: str) -> None:
    """The slope of a sum is the sum of the data, in each column that the sum reads."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(float[4,6] x) => (float[4,3] y) '
        "{ h = MatMul(x, w) zero = Constant<value = int64 {0}>() " + body + " }"
    )
    weights, data = (RNG.normal(size=shape).astype(np.float32) for shape in ((6, 6), (4, 6)))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    builder = popart.Builder(model.SerializeToString())
    loss = builder.aiGraphcore.identityloss(["y"], popart.ReductionType.Sum)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.5), device)
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": data}, session.initAnchorArrays()))
    found = np.empty_like(weights)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({"w": found}))
    expected = weights.copy()
    expected[:, :3] -= 0.5 * data.sum(0)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("asked", [{}, {"trainable": "k,s,c"}])
def test_a_training_step_updates_the_statistics_of_batch_normalisation(asked: dict[str, str], tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(float[4,3] x) => (float[4,3] y) '
        "{ h = Mul(x, k) y, a, b = BatchNormalization<training_mode = 1, momentum = 0.75>(h, s, c, mean, var) }"
    )
    ones = np.ones(3, np.float32)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(ones, n) for n in ("k", "s", "c", "mean", "var"))
    builder = popart.Builder(model.SerializeToString())
    loss = builder.aiGraphcore.l1loss(["y"], 0.1)
    session = prepared(builder, loss, **asked)
    x = np.ascontiguousarray(X[:, :, 0, 0])
    session.run(popart.PyStepIO({"x": x}, session.initAnchorArrays()))
    session.modelToHost(str(tmp_path / "out.onnx"))
    held = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "out.onnx").graph.initializer}
    np.testing.assert_allclose(held["mean"], 0.75 + 0.25 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(held["var"], 0.75 + 0.25 * x.var(0), rtol=1e-5)
    assert not np.allclose(held["s"], ones)


def test_a_layer_that_is_applied_twice_updates_its_statistics_twice(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(float[4,3] x) => (float[4,3] y) { h = Mul(x, k) '
        "p, m1, v1 = BatchNormalization<training_mode = 1, momentum = 0.75>(x, s, c, mean, var) "
        "q, m2, v2 = BatchNormalization<training_mode = 1, momentum = 0.75>(h, s, c, mean, var) y = Add(p, q) }"
    )
    for name, value in {"k": 3, "s": 1, "c": 0, "mean": 1, "var": 1}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, value, np.float32), name))
    builder = popart.Builder(model.SerializeToString())
    session = prepared(builder, builder.aiGraphcore.l1loss(["y"], 0.1), trainable="s,c")
    x = np.ascontiguousarray(X[:, :, 0, 0])
    session.run(popart.PyStepIO({"x": x}, session.initAnchorArrays()))
    session.modelToHost(str(tmp_path / "out.onnx"))
    held = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "out.onnx").graph.initializer}
    np.testing.assert_allclose(held["mean"], 0.75 * (0.75 + 0.25 * x.mean(0)) + 0.25 * 3 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(held["var"], 0.75 * (0.75 + 0.25 * x.var(0)) + 0.25 * 9 * x.var(0), rtol=1e-5)


def test_weights_in_a_loop_whose_results_are_a_sequence_are_said_not_to_be_trained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As PyTorch's exporter writes an EmbeddingBag."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(float[2,3] x) => (float[2,3] y) { none = SequenceEmpty() '
        "all = Loop(two, , none) <body = b(int64 i, bool go, seq(float[2,3]) into) => (bool on, seq(float[2,3]) out) "
        "{ on = Identity(go) h = Mul(x, w) out = SequenceInsert(into, h) }> y = ConcatFromSequence<axis = 0>(all) }"
    )
    held = {"two": np.array(2, np.int64), "w": np.ones(3, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in held.items())
    builder = popart.Builder(model.SerializeToString())
    with caplog.at_level("WARNING"):
        prepared(builder, builder.aiGraphcore.l1loss(["y"], 0.1))
    assert "Loop has no gradient in PopART" in caplog.text
    assert "are not trained: 'w'." in caplog.text
