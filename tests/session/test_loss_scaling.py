"""Loss scales: half models, scales beyond the half range, automatic loss scaling, scaled optimizer state."""

from __future__ import annotations

import json

import numpy as np
import pytest

import popart_jax as popart

from . import nets
from .nets import accumulated, model, replicated, run, train, weights_of

HALF = """g (float16[4] x) => (float16 loss) {
    y = Mul(x, w)
    z = Sigmoid(y)
    loss = ai.graphcore.IdentityLoss<reduction = "Sum">(z)
}"""
W = np.asarray([0.5, -1.0, 2.0, 0.25], np.float16)
X = np.asarray([0.1, -0.2, 0.3, 0.05], np.float16)
EDGE = 0.125 * 65504


def _half_sgd(scale: float = 1.0, const: bool = False, **more) -> popart.SGD:
    return popart.SGD({"defaultLearningRate": (0.5, True), "lossScaling": (scale, const), **more})


def _automatic(**values) -> popart.SessionOptions:
    settings = popart.AutomaticLossScalingSettings()
    settings.enabled = True
    for name, value in values.items():
        setattr(settings, name, value)
    return settings


def _session(anchors, scale, batches=1, options=None, **settings):
    return train(
        model(HALF, w=W), anchors, _half_sgd(scale), batches, automaticLossScalingSettings=_automatic(**settings),
        **(options or {}),
    )  # fmt: skip


@pytest.mark.parametrize("options", [{}, accumulated(2), replicated(2), {**accumulated(2), **replicated(2)}])
def test_factor_follows_the_histogram(options):
    """Doubles while all tracked gradients are small, halves when one passes the edge."""
    session = _session({"finalLossScale": "All", "lossScaling_FLOAT16": "All"}, 2.0**14, 4, options)
    shape = (
        4,
        *((2,) if "accumulationFactor" in options else ()),
        *((2,) if "replicatedGraphCount" in options else ()),
    )
    found = run(session, x=np.broadcast_to(X, (*shape, 4)))
    scale, expected = 2.0**14, []
    for _ in range(4):
        expected.append(scale)
        scale = scale * 2 if scale < EDGE else scale / 2  # the largest tracked gradient, that of z, is the scale itself
    shown = found["finalLossScale"].reshape(4, -1)
    np.testing.assert_allclose(shown, np.repeat(np.asarray(expected)[:, None], shown.shape[1], 1))
    assert (found["lossScaling_FLOAT16"] == 2.0**14).all()
    assert len(set(expected)) > 1


@pytest.mark.parametrize(
    ("optimizer", "inverse"),
    [
        (_half_sgd(2.0), 0.5 / 2),
        (popart.SGD({"lossScaling": (2.0, False), "defaultMomentum": (0.9, True)}), 1 / 2),
        (popart.Adam({"lossScaling": (2.0, False)}), 1 / 2),
        (popart.Adaptive({"lossScaling": (2.0, False)}), 1 / 2),
    ],
    ids=["sgd", "momentum", "adam", "adaptive"],
)
def test_inverse_loss_scale_follows_the_factor(optimizer, inverse):
    """Every scalar that holds the inverse loss scale is shown after its division by the factor."""
    anchors = {"finalLossScale": "All", "finalInverseLossScale_0": "All"}
    session = train(
        model(HALF, w=W), anchors, optimizer, 3, automaticLossScalingSettings=_automatic(binEdgeLocation=0.5)
    )
    found = run(session, x=np.broadcast_to(X, (3, 4)))
    np.testing.assert_allclose(found["finalLossScale"], [2, 4, 8])
    np.testing.assert_allclose(found["finalInverseLossScale_0"], np.float32(inverse) / np.asarray([1, 2, 4]), rtol=1e-6)


def test_updates_do_not_depend_on_the_factor():
    plain = train(model(HALF, w=W), {"loss": "Sum"}, _half_sgd(64.0), 3)
    automatic = _session({"loss": "Sum"}, 64.0, 3)
    for session in (plain, automatic):
        run(session, x=np.broadcast_to(X, (3, 4)))
    got = [weights_of(s, w=W)["w"] for s in (plain, automatic)]
    np.testing.assert_allclose(got[0], got[1], rtol=2e-3)
    assert (got[0] != W).any()


def test_factor_is_saved(tmp_path):
    session = _session({"finalLossScale": "All"}, 4.0)
    for _ in range(3):
        run(session, x=X)
    session.modelToHost(str(tmp_path / "m.onnx"))
    again = train(str(tmp_path / "m.onnx"), {"finalLossScale": "All"}, _half_sgd(4.0),
                  automaticLossScalingSettings=_automatic())  # fmt: skip
    assert run(again, x=X)["finalLossScale"] == 4 * 2**3


def test_period(tmp_path):
    """Decisions after batches 0, p, 2p, ... counted over the life of the state."""
    session = _session({"finalLossScale": "All"}, 1.0, 2, updatePeriod=3)
    seen = [run(session, x=np.broadcast_to(X, (2, 4)))["finalLossScale"] for _ in range(3)]
    np.testing.assert_array_equal(np.concatenate(seen), [1, 2, 2, 2, 4, 4])


@pytest.mark.parametrize(
    ("settings", "scale", "text"),
    [
        ({}, (1.0, True), r"\[AutomaticLossScale transform\] The optimizer must have non-const loss scaling"),
        ({"binEdgeLocation": 1.5}, (1.0, False), "Out of range value for 'binEdgeLocation'."),
        ({"toTrackTensors": ["nope"],
          "gradientTensorTrackingMethod": popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors},
         (1.0, False), "do not exist in the model. Please look at the error log"),
        ({"toTrackTensors": ["y"]}, (1.0, False), "toTrackTensors"),
    ],
)  # fmt: skip
def test_errors(settings, scale, text):
    with pytest.raises(popart.popart_exception, match=text):
        train(model(HALF, w=W), {"loss": "Sum"}, _half_sgd(*scale), automaticLossScalingSettings=_automatic(**settings))


def test_period_and_accumulation_need_not_be_multiples():
    """Supplement 5.16 says so, but PopART's programs train with a period of 2 and 3 micro-batches."""
    _session({"loss": "Sum"}, 1.0, options=accumulated(3), updatePeriod=2)


def test_nothing_to_track():
    proto, _ = nets.linear()
    with pytest.raises(popart.popart_exception, match="No tracked gradient tensors of type fp16 were found"):
        train(proto, {"loss": "Sum"}, _half_sgd(), automaticLossScalingSettings=_automatic())


def test_threshold_is_checked_by_prepare_device():
    options = nets.make_options(automaticLossScalingSettings=_automatic(thresholdUpperCountProportion=2.0))
    session = popart.TrainingSession(
        model(HALF, w=W), nets.flow(1, {"loss": "Sum"}), "loss", _half_sgd(), nets.device(), userOptions=options
    )
    with pytest.raises(popart.popart_exception, match=r"^Out of range value for 'thresholdUpperCountProportion'"):
        session.prepareDevice()


def test_scale_beyond_half():
    """ensureFp32LossScaleTensor: the scale enters in float32, gradients are rounded after it."""
    text = """g (float16[256] x) => (float16 loss) {
        y = Mul(x, w)
        loss = ai.graphcore.L1<lambda = 1.0, reduction = "Mean">(y)
    }"""
    w = np.ones(256, np.float16)
    scale = 2.0**18
    session = train(model(text, w=w), {"Gradient___y": "All", "loss": "All", "lossScaling_FLOAT16": "All"},
                    _half_sgd(scale), ensureFp32LossScaleTensor=True)  # fmt: skip
    found = run(session, x=np.ones(256, np.float16))
    np.testing.assert_array_equal(found["Gradient___y"], np.full(256, scale / 256, np.float16))
    assert found["loss"] == 1
    assert found["loss"].dtype == np.float16
    assert found["lossScaling_FLOAT16"].dtype == np.float32
    assert found["lossScaling_FLOAT16"] == scale


@pytest.mark.parametrize("mode", list(popart.AdamMode))
def test_scaled_adam_with_a_changing_loss_scale(mode):
    """The moments are rescaled on the way, so the weights equal those of the unscaled form."""
    proto, w = nets.linear()
    got = []
    for scaled in (False, True):

        def adam(scale, scaled=scaled):
            values = {"lossScaling": (scale, False), "defaultEps": (1e-3, True), "defaultLearningRate": (0.1, True)}
            return popart.Adam(values, mode, scaled_optimizer_state=scaled)

        session = train(proto, {"loss": "Sum"}, adam(2.0))
        for step, scale in enumerate((2.0, 16.0, 4.0)):
            session.updateOptimizerFromHost(adam(scale))
            run(session, x=np.asarray([1, -2, 0.5], np.float32) * (step + 1))
        got.append(weights_of(session, w=w)["w"])
    np.testing.assert_allclose(*got, rtol=1e-5)
    assert (got[0] != w).all()


def test_ratio_of_loss_scales_is_shown():
    """Scaled optimizer state: new loss scale over the previous one, 1 while it does not change."""

    def adam(scale: float) -> popart.Adam:
        return popart.Adam({"lossScaling": (scale, False)}, scaled_optimizer_state=True)

    session = train(model(HALF, w=W), {"LossScalingRatio_FLOAT16": "All"}, adam(2.0))
    assert run(session, x=X)["LossScalingRatio_FLOAT16"] == 1
    session.updateOptimizerFromHost(adam(6.0))
    assert run(session, x=X)["LossScalingRatio_FLOAT16"] == 3
    assert run(session, x=X)["LossScalingRatio_FLOAT16"] == 1


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("period", [1, 2])
def test_counted_are_the_histograms_of_the_ir(loops, period):
    """One count per Histogram op: float16 outputs of backward ops that are no views."""
    builder = popart.Builder()
    value = x = builder.addInputTensor("FLOAT16", [4, 4], "x")
    for name in "uv":
        w = builder.addInitializedInputTensor(np.full((4, 4), 0.1, np.float16), name)
        value = builder.aiOnnx.relu([builder.aiOnnx.matmul([value, w])])
    twice = builder.aiOnnx.add([value, value])
    loss = builder.aiGraphcore.identityloss([twice])
    session = train(
        builder.getModelProto(), {loss: "All"}, _half_sgd(), loss=loss, enableOutlining=False,
        automaticLossScalingSettings=_automatic(updatePeriod=period),
        **dict.fromkeys(("useHostCopyOps", "enableExplicitMainLoops"), loops),
    )  # fmt: skip
    graphs = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON)).values()
    ops = [op for graph in graphs for op in graph]
    scaling = session._parts.prepared.program.training.scaling
    assert len(scaling.tracked) == sum(op["type"] == "Histogram" for op in ops) == 7
    assert set(scaling.tracked) == {"MatMul:0", "MatMul:0/1", "Relu:0", "Relu:0/1", "Add:0", "u", "v"}
    assert x not in scaling.tracked


def test_parts_of_a_gradient_are_counted_before_they_are_added():
    """Two readers contribute 10,000 and -10,000: both are large, their sum is nothing."""
    builder = popart.Builder()
    onnx = builder.aiOnnx
    x = builder.addInputTensor("FLOAT16", [2, 4], "x")
    w = builder.addInitializedInputTensor(np.ones((2, 4), np.float16), "w")
    h = onnx.add([x, w])
    large = onnx.constant(np.full((2, 4), 10000, np.float16))
    y = onnx.sub([onnx.mul([h, large]), onnx.mul([h, large])])
    loss = builder.aiGraphcore.identityloss([y], reduction=popart.ReductionType.Sum)
    session = train(
        builder.getModelProto(), {f"Gradient___{h}": "All", "lossScaleUpdateFactor": "All"}, _half_sgd(1.0), loss=loss,
        automaticLossScalingSettings=_automatic(),
    )  # fmt: skip
    found = run(session, x=np.zeros((2, 4), np.float16))
    np.testing.assert_array_equal(found[f"Gradient___{h}"], 0)
    assert found["lossScaleUpdateFactor"] == 0.5
