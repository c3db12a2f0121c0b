"""Virtual graphs, pipelining, recomputation, batch serialisation, locations: values do not change, names exist."""

from __future__ import annotations

import json

import numpy as np
import pytest

import popart_jax as popart

from . import nets

B, A = 2, 6


def _model(checkpoint: bool = False) -> tuple[bytes, dict[str, str]]:
    """Two dense layers on two IPUs; the first product may be a checkpoint of recomputation."""
    rng = np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 8]))
    label = builder.addInputTensor(popart.TensorInfo("INT32", [4]))
    w0 = builder.addInitializedInputTensor(rng.normal(size=(8, 8)).astype(np.float32), "w0")
    w1 = builder.addInitializedInputTensor(rng.normal(size=(8, 3)).astype(np.float32), "w1")
    onnx = builder.aiOnnx
    with builder.virtualGraph(0), builder.pipelineStage(0):
        product = onnx.matmul([x, w0])
        h = onnx.relu([builder.checkpointOutput([product])[0] if checkpoint else product])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        p = onnx.softmax([onnx.matmul([h, w1])])
        loss = builder.aiGraphcore.nllloss([p, label])
    return builder.getModelProto(), {"x": x, "label": label, "h": h, "p": p, "loss": loss}


def _train(anchors=(), **options):
    proto, names = _model()
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow = nets.flow(B, {names["loss"]: "All", **dict.fromkeys(anchors, "All")})
    optimizer = popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)})
    session = popart.TrainingSession(
        proto, flow, names["loss"], optimizer, device, userOptions=nets.make_options(**nets.accumulated(A), **options)
    )
    session.prepareDevice()
    session.weightsFromHost()
    rng = np.random.default_rng(1)
    feed = {
        names["x"]: rng.normal(size=(B, A, 4, 8)).astype(np.float32),
        names["label"]: rng.integers(0, 3, (B, A, 4)).astype(np.int32),
    }
    found = nets.run(session, **feed)
    weights = nets.weights_of(session, w0=np.empty((8, 8), np.float32), w1=np.empty((8, 3), np.float32))
    return session, names, found, weights


MANUAL = {"virtualGraphMode": popart.VirtualGraphMode.Manual}
OPTIONS = {
    "manual": MANUAL,
    "pipelined": {**MANUAL, "enablePipelining": True},
    "recompute all": {**MANUAL, "autoRecomputation": popart.RecomputationType.RecomputeAll},
    "recompute standard": {**MANUAL, "autoRecomputation": popart.RecomputationType.Standard},
    "pipelined recompute": {
        **MANUAL, "enablePipelining": True, "autoRecomputation": popart.RecomputationType.Pipeline,
    },
    "auto": {"virtualGraphMode": popart.VirtualGraphMode.Auto},
    "batch serialisation": {
        **MANUAL, "batchSerializationSettings": popart.BatchSerializationSettings(2, True, True, True),
    },
    "no outlining": {**MANUAL, "enableOutlining": False},
    "main loops": {**MANUAL, "useHostCopyOps": True, "enableExplicitMainLoops": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def plain():
    return _train(**MANUAL)


@pytest.mark.parametrize("name", OPTIONS)
def test_values_do_not_change(plain, name):
    _, names, found, weights = plain
    _, _, other, others = _train(**OPTIONS[name])
    np.testing.assert_allclose(other[names["loss"]], found[names["loss"]], rtol=1e-6)
    for weight, value in weights.items():
        np.testing.assert_allclose(others[weight], value, rtol=1e-5, atol=1e-7)


def test_a_batch_that_can_not_be_taken_apart():
    settings = popart.BatchSerializationSettings(3, True, True, True)
    with pytest.raises(popart.popart_exception, match=r"batch size 4 of tensor .* not divisible .* factor 3"):
        _train(**MANUAL, batchSerializationSettings=settings)


def test_stashes_show_the_activation():
    _, names = _model()
    stash = f"Stashed___{names['x']}"
    _, names, found, _ = _train([names["x"], stash, names["h"]], **MANUAL, enablePipelining=True)
    np.testing.assert_array_equal(found[stash], found[names["x"]])


def _ops(session) -> list[dict]:
    return json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]


@pytest.mark.parametrize("mode", ["Pipeline", "Standard"])
def test_checkpoints_of_a_stage_are_stashed(mode):
    """Checkpoints are no recompute annotations: they go together with every kind of automatic recomputation."""
    proto, names = _model(checkpoint=True)
    options = nets.make_options(
        **nets.accumulated(A), **MANUAL, enablePipelining=True, autoRecomputation=popart.RecomputationType[mode]
    )
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow = nets.flow(B, {names["loss"]: "All"})
    session = popart.TrainingSession(proto, flow, names["loss"], nets.sgd(), device, userOptions=options)
    ops = _ops(session)
    kept = next(op for op in ops if op["name"] == "Checkpoint")
    assert kept["attributes"]["recomputetype"] == "Checkpoint"
    stashed = {op["inputs"][0]["name"] for op in ops if op["type"] == "Stash"}
    assert kept["outputs"][0]["name"] in stashed
    assert names["x"] in stashed  # for the gradient of w0


def test_annotated_ops_are_recomputed():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4]))
    w = builder.addInitializedInputTensor(np.ones(4, np.float32))
    with builder.recomputeOutput(popart.RecomputeType.Recompute):
        y = builder.aiOnnx.sigmoid([builder.aiOnnx.mul([x, w])])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.tanh([y])])
    made = {}
    for explicit in (False, True):
        options = nets.make_options(explicitRecomputation=explicit)
        flow = nets.flow(1, {loss: "All"})
        made[explicit] = popart.TrainingSession(
            builder.getModelProto(), flow, loss, nets.sgd(), nets.device(), userOptions=options
        )
    marked = {op["type"] for op in _ops(made[False]) if op["attributes"]["recompute"] == "YES"}
    assert marked == {"Mul", "SigmoidInplace"}
    copies = {
        o["name"] for op in _ops(made[True]) if op["attributes"]["recomputetype"] == "Recomputed" for o in op["outputs"]
    }
    assert f"{y}__re" in copies


def test_loops_are_recomputed():
    """The copy of the Loop has a body of its own: a shared one could not be sorted."""
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    w = builder.addInitializedInputTensor(np.ones(4, np.float32))
    body = builder.createSubgraphBuilder()
    _, keep, carried = (body.addUntypedInputTensor() for _ in range(3))
    body.addOutputTensor(keep)
    body.addOutputTensor(body.aiOnnx.tanh([body.aiOnnx.add([carried, w])]))
    trips, go = (builder.aiOnnx.constant(x) for x in (np.array(2, np.int64), np.array(True)))
    (y,) = builder.aiOnnx.loop([trips, go, w], 1, body)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([y, w])], popart.ReductionType.Sum)
    options = popart.SessionOptions()
    options.explicitRecomputation, options.autoRecomputation = True, popart.RecomputationType.RecomputeAll
    flow = nets.flow(1, {f"Gradient___{w}": "All", loss: "All"})
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, nets.sgd(), nets.device(), userOptions=options
    )
    session.prepareDevice()
    session.weightsFromHost()
    found = nets.run(session)[f"Gradient___{w}"]
    np.testing.assert_allclose(found, np.full(4, np.tanh(np.tanh(2) + 1)), rtol=1e-6)  # a Loop has no gradient
    assert f"{y}__re" in {o["name"] for op in _ops(session) for o in op["outputs"]}


def test_forward_only_program():
    session, names, _, weights = _train(
        [], **MANUAL, enablePipelining=True, createImplicitPipeliningFwdOnlyProgram=True
    )
    rng = np.random.default_rng(2)
    x = rng.normal(size=(B, A, 4, 8)).astype(np.float32)
    label = rng.integers(0, 3, (B, A, 4)).astype(np.int32)
    found = session.initAnchorArrays()
    session.run("implicitPipeliningFwdOnly", popart.PyStepIO({names["x"]: x, names["label"]: label}, found))
    logits = np.maximum(x @ weights["w0"], 0) @ weights["w1"]
    e = np.exp(logits - logits.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(p, label[..., None], -1) + 1e-7).mean((-1, -2))
    np.testing.assert_allclose(found[names["loss"]], expected, rtol=1e-4)
    after = nets.weights_of(session, **weights)
    np.testing.assert_array_equal(after["w0"], weights["w0"])


def test_sharded_and_off_chip_variables():
    location = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip), 0, 0)
    options = {"optimizerStateTensorLocationSettings": location, "weightTensorLocationSettings": location}
    _, _, _, weights = _train(**MANUAL, **options)
    _, _, _, others = _train(**MANUAL)
    np.testing.assert_array_equal(weights["w0"], others["w0"])


def test_an_ipu_that_does_not_exist():
    """Found when the device is prepared, when the op works in place and reads a copy."""
    builder = popart.Builder()
    a, b, c = (builder.addInputTensor("FLOAT", [2], n) for n in "abc")
    first = builder.aiOnnx.add([a, b])
    second = builder.aiOnnx.add([first, c], "mine")
    builder.virtualGraph(first, 0)
    builder.virtualGraph(second, 2)
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [second]),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    with pytest.raises(popart.popart_exception) as caught:
        session.prepareDevice()
    assert caught.value.args[0] == (
        "Op(mine (ai.graphcore.AddLhsInplace:1), inputs=[Add:0_c2, c], outputs=[Add:0/1]) "
        "has been assigned to an invalid virtual graph 2. numIPUs = 2."
    )


def test_programs_choose_io_tiles():
    """`InputSettings` and `AnchorReturnType` say so; without I/O tiles there is nothing to choose."""
    builder = popart.Builder()
    settings = popart.InputSettings(popart.TileSet.IO, popart.ExchangeStrategy.JustInTime)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), settings, "x")
    y = builder.aiOnnx.relu([x])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All", popart.TileSet.IO)})
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472})
    for tiles, copies in ((32, 2), (0, 0)):
        options = nets.make_options(useHostCopyOps=True, numIOTiles=tiles)
        session = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
        ops = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
        assert [op["type"] for op in ops].count("IoTileCopy") == copies
