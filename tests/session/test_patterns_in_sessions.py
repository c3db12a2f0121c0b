"""What the pattern selection means for a session: values, anchors, the serialised IR, errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

import popart_jax as popart

INPUTS = {"input": np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6), "input/1": np.array([1, 2], np.int32)}


def network(builder):
    """Identity, Relu, MatMul, Softmax and Nll; returns names by role."""
    rng = np.random.default_rng(4)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 6]))
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [2]))
    weight = builder.addInitializedInputTensor(rng.normal(size=(6, 4)).astype(np.float32))
    hidden = builder.aiOnnx.identity([builder.aiOnnx.relu([builder.aiOnnx.identity([x])])])
    scores = builder.aiOnnx.matmul([hidden, weight])
    probs = builder.aiOnnx.softmax([scores])
    loss = builder.aiGraphcore.nllloss([probs, labels])
    return {"weight": weight, "hidden": hidden, "scores": scores, "probs": probs, "loss": loss}


def session(patterns, roles, gradients=()):
    builder = popart.Builder()
    names = network(builder)
    anchors = [names[r] for r in roles] + [f"Gradient___{names[r]}" for r in gradients]
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {a: popart.AnchorReturnType("All") for a in anchors}),
        names["loss"],
        popart.SGD({"defaultLearningRate": (0.1, False)}),
        popart.DeviceManager().createCpuDevice(),
        patterns=patterns,
    )
    return made, names


def run(patterns, roles=("loss", "probs", "hidden"), gradients=("weight", "scores")):
    made, _ = session(patterns, roles, gradients)
    made.prepareDevice()
    made.weightsFromHost()
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO(dict(INPUTS), anchors))
    return anchors


def types(made):
    graphs = json.loads(made._serializeIr(popart.IrSerializationFormat.JSON))
    return [op["type"] for op in graphs["maingraph"]]


@pytest.mark.parametrize("level", ["Minimal", "All"])
def test_levels_give_equal_values(level):
    wanted, got = run(popart.Patterns()), run(popart.Patterns(getattr(popart.PatternsLevel, level)))
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_anchored_gradient_of_probabilities_keeps_the_clamp():
    gradients = run(popart.Patterns(), roles=("probs",), gradients=("probs",))
    probs, gradient = gradients["Softmax:0"], gradients["Gradient___Softmax:0"]
    wanted = np.zeros_like(probs)
    wanted[np.arange(2), INPUTS["input/1"]] = -0.5 / probs[np.arange(2), INPUTS["input/1"]]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)


def test_serialised_ir_follows_the_selection():
    on, _ = session(popart.Patterns(), ("loss",))
    assert "NlllWithSoftmaxGradDirect" in types(on)
    assert "Identity" not in types(on)
    off = popart.Patterns(popart.PatternsLevel.Minimal)
    found = types(session(off, ("loss",))[0])
    assert {"Nll", "NllGrad", "SoftmaxGrad", "Identity"} <= set(found)
    assert not [t for t in found if "Inplace" in t]


def test_mandatory_patterns():
    with pytest.raises(popart.popart_exception, match="must be enabled"):
        session(popart.Patterns(popart.PatternsLevel.NoPatterns), ("loss",))
    bare = popart.Patterns([]).enableRuntimeAsserts(False)
    session(bare, ("loss",))


def test_op_that_needs_its_pattern_fails_when_preparing():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    y = builder.aiOnnx.cosh([x])
    chosen = popart.Patterns(["PostNRepl"]).enableRuntimeAsserts(False)
    made = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {y: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createCpuDevice(),
        patterns=chosen,
    )
    with pytest.raises(popart.popart_exception, match=r"Could not create opx for 'ai.onnx.Cosh:9'.*pattern CoshOp"):
        made.prepareDevice()


def test_tied_gather_alone_detaches_the_gather():
    """Spec: without TiedGatherAccumulate the tied Gather contributes no gradient to the table."""

    def gradient(*names):
        builder = popart.Builder()
        table = builder.addInitializedInputTensor(np.arange(12, dtype=np.float32).reshape(4, 3))
        rows = builder.aiOnnx.gather([table, builder.aiOnnx.constant(np.array([0, 2], np.int32))])
        scores = builder.aiOnnx.matmul([rows, builder.aiOnnx.transpose([table], [1, 0])])
        loss = builder.aiGraphcore.identityloss([scores], reduction=popart.ReductionType.Sum)
        options = popart.SessionOptions()
        options.enableGradientAccumulation, options.accumulationFactor = True, 2
        chosen = popart.Patterns()
        for name in names:
            chosen.enablePattern(name, True)
        made = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, {f"Gradient___{table}": popart.AnchorReturnType("Final")}),
            loss,
            popart.SGD({"defaultLearningRate": (0.1, False)}),
            popart.DeviceManager().createCpuDevice(),
            patterns=chosen,
            userOptions=options,
        )
        made.prepareDevice()
        made.weightsFromHost()
        anchors = made.initAnchorArrays()
        made.run(popart.PyStepIO({}, anchors))
        return anchors[f"Gradient___{table}"]

    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    dense = np.tile(table[[0, 2]].sum(0), (4, 1))
    sparse = np.zeros_like(table)
    sparse[[0, 2]] = table.sum(0)
    np.testing.assert_allclose(gradient(), dense + sparse)
    np.testing.assert_allclose(gradient("TiedGather", "TiedGatherAccumulate"), dense + sparse)
    np.testing.assert_allclose(gradient("TiedGather"), dense)
