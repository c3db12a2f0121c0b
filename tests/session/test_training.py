"""Training structure: reductions, batch norm statistics, dropout and seeds, groups, clipping, optimizer changes."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import popart_jax as popart

from . import nets
from .nets import accumulated, linear, model, replicated, run, sgd, train, weights_of

B, A, R = 2, 3, 2
MEAN = {"accumulationAndReplicationReductionType": popart.ReductionType.Mean}
RUNNING = {**MEAN, "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running}


def _x(*lead: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(*lead, 3)).astype(np.float32)


@pytest.mark.parametrize("options", [{}, MEAN, RUNNING], ids=["sum", "post", "running"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("mode", list(popart.SGDAccumulatorAndMomentum))
def test_reductions(options, momentum, mode):
    """Gradients of micro-batches and replicas combine by sum or mean; the loss scale cancels."""
    proto, w = linear()
    values = {"defaultLearningRate": (0.5, True), "defaultMomentum": (momentum, True), "lossScaling": (4.0, True)}
    optimizer = popart.SGD(values, accumulatorAndMomentum=mode)
    session = train(proto, {"loss": "Sum"}, optimizer, B, **accumulated(A), **replicated(R), **options)
    x = _x(B, A, R)
    run(session, x=x)
    v, expected = 0, w
    for b in range(B):
        v = momentum * v + (x[b].mean((0, 1)) if options else x[b].sum((0, 1)))
        expected = expected - 0.5 * v
    np.testing.assert_allclose(weights_of(session, w=w)["w"], expected, rtol=1e-5, atol=1e-6)


def test_const_and_streamed_scalars_give_the_same_bits():
    proto, w = linear()
    got = []
    for const in (True, False):
        values = {n: (v, const) for n, v in {"defaultLearningRate": 0.3, "defaultWeightDecay": 0.07,
                  "defaultMomentum": 0.83, "defaultDampening": 0.1, "lossScaling": 3.0}.items()}  # fmt: skip
        session = train(proto, {"loss": "Sum"}, popart.SGD(values), 5)
        run(session, x=_x(5))
        got.append(weights_of(session, w=w)["w"])
    np.testing.assert_array_equal(*got)


def test_new_values_do_not_recompile():
    proto, w = linear()
    session = train(proto, {"loss": "Sum"}, sgd(0.5, False))
    call = session._engine.programs[""].executable.call
    x = _x()
    run(session, x=x)
    session.updateOptimizerFromHost(sgd(0.25, False))
    run(session, x=x)
    assert session._engine.programs[""].executable.call is call
    np.testing.assert_allclose(weights_of(session, w=w)["w"], w - 0.75 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (lambda: sgd(0.5, True), "Problem with learning rates"),
        (lambda: popart.SGD({"defaultLearningRate": (0.5, False), "defaultWeightDecay": (0.1, True)}), "weight decays"),
        (lambda: popart.SGD({"defaultLearningRate": (0.5, False), "lossScaling": (2, True)}), "loss scaling"),
        (lambda: popart.SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.1, True)}), "velocity tensor"),
        (lambda: popart.Adam({}), "optimizer of type SGD with new optimizer of type Adam"),
        (
            lambda: popart.SGD({"defaultLearningRate": (0.5, False)}, [popart.ClipNormSettings.clipAllWeights(1)]),
            "Clip norm settings do not match",
        ),
    ],
)
def test_refused_replacements(new, text):
    proto, _ = linear()
    session = train(proto, {"loss": "Sum"}, sgd(0.5, False))
    with pytest.raises(popart.popart_exception, match=text):
        session.updateOptimizerFromHost(new())


def test_dampening_is_not_compared():
    proto, _ = linear()
    session = train(proto, {"loss": "Sum"}, sgd(0.5, False))
    session.updateOptimizerFromHost(sgd(0.5, False, defaultDampening=(0.5, False)))


BATCH_NORM = """g (float[4,3,5] x) => (float loss) {
    y, m1, v1, sm, sv = BatchNormalization<momentum = 0.8>(x, scale, bias, mean, var)
    loss = ai.graphcore.L1<lambda = 1.0, reduction = "Sum">(y)
}"""


@pytest.mark.parametrize("replicas", [1, 2])
def test_running_statistics(replicas):
    """They move with every micro-batch and drift apart over replicas; the host sees replica 0."""
    weights = {"scale": np.ones(3), "bias": np.zeros(3), "mean": np.zeros(3), "var": np.ones(3)}
    weights = {n: v.astype(np.float32) for n, v in weights.items()}
    options = {**accumulated(A), **(replicated(replicas) if replicas > 1 else {})}
    session = train(model(BATCH_NORM, **weights), {"loss": "Sum"}, sgd(0.01), B, **options)
    x = np.random.default_rng(0).normal(size=(B, A, replicas, 4, 3, 5)).astype(np.float32)
    run(session, x=x)
    mean, var = weights["mean"], weights["var"]
    for part in x[:, :, 0].reshape(-1, 4, 3, 5):
        mean = 0.8 * mean + 0.2 * part.mean((0, 2))
        var = 0.8 * var + 0.2 * part.var((0, 2))
    got = weights_of(session, **weights)
    np.testing.assert_allclose(got["mean"], mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got["var"], var, rtol=1e-4)


DROPOUT = """g (float[64] x) => (float loss) {
    y, mask = Dropout<ratio = 0.5>(x)
    z = Mul(y, w)
    loss = ai.graphcore.IdentityLoss<reduction = "Sum">(z)
}"""


def _dropout_session(batches=2, **options):
    names = {"y": "All", "mask": "All", "Gradient___x": "All"}
    return train(model(DROPOUT, w=np.ones(64, np.float32)), names, sgd(1e-30), batches, **options)


def test_seeds_repeat_and_resume():
    session = _dropout_session()
    x = np.ones((2, 64), np.float32)
    session.setRandomSeed(123)
    assert session.getRandomSeed() == 123
    first, second = (run(session, x=x)["y"] for _ in range(2))
    assert (first[0] != first[1]).any()
    assert (first != second).any()
    session.setRandomSeed(123)
    np.testing.assert_array_equal(run(session, x=x)["y"], first)
    middle = session.getRandomSeed()
    assert middle == 123 + 2 + (2 << 32), "two micro-batches: the low word by the replicas, the high word by one"
    later = _dropout_session()
    later.setRandomSeed(middle)
    np.testing.assert_array_equal(run(later, x=x)["y"], second)


def test_masks_agree_and_replicas_differ():
    session = _dropout_session(1, **replicated(2))
    session.setRandomSeed(5)
    found = run(session, x=np.ones((2, 64), np.float32))
    np.testing.assert_array_equal(found["y"], found["mask"] * 2.0)
    np.testing.assert_array_equal(found["Gradient___x"], found["mask"] * 2.0)
    assert (found["y"][0] != found["y"][1]).any()


def test_seed_without_random_operators(caplog):
    proto, _ = linear()
    session = train(proto, {"loss": "Sum"}, sgd())
    session.setRandomSeed(3)
    assert session.getRandomSeed() == 0


def test_seed_before_prepare():
    session = popart.TrainingSession(
        model(DROPOUT, w=np.ones(64, np.float32)), nets.flow(1, {"y": "All"}), "loss", sgd(), nets.device()
    )
    with pytest.raises(popart.popart_runtime_error, match=r"^Devicex::prepare\(\) must be called before"):
        session.setRandomSeed(1)


GROUPS = [
    (popart.CommGroupType.Consecutive, 2, [[0, 1], [2, 3]]),
    (popart.CommGroupType.Orthogonal, 2, [[0, 2], [1, 3]]),
    (popart.CommGroupType.Ungrouped, 0, [[0], [1], [2], [3]]),
]


@pytest.mark.parametrize(("kind", "size", "groups"), GROUPS)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("factor", [1, 2])
def test_grouped_weights(kind, size, groups, momentum, factor):
    """Each group has its own value and sums its own gradients; optimizer state follows."""
    count = len(groups)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    w0 = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    settings = popart.VariableSettings(popart.CommGroup(kind, size))
    w = builder.addInitializedInputTensor(w0, settings, "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], reduction=popart.ReductionType.Sum)
    options = {**replicated(4), **(accumulated(factor) if factor > 1 else {})}
    optimizer = sgd(0.5, defaultMomentum=(momentum, True))
    session = train(builder.getModelProto(), {"w": "Final"}, optimizer, 2, loss=loss, **options)
    data = _x(2, factor, 4)
    found = run(session, **{x: data})
    ops = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    grouping = [op["attributes"]["__collectiveReplicaGrouping"] for op in ops if "AllReduce" in op["type"]]
    own, apart = len(groups[0]), groups[0][-1] - groups[0][0]
    assert grouping == ([f"[4 {apart} {own}]"] if own > 1 else [])
    expected, v = w0.astype(np.float64), np.zeros((count, 3))
    for b in range(2):
        for g, members in enumerate(groups):
            v[g] = momentum * v[g] + data[b][:, members].sum((0, 1))
        expected = expected - 0.5 * v
    np.testing.assert_allclose(weights_of(session, w=w0)["w"], expected, rtol=1e-5, atol=1e-6)
    for g, members in enumerate(groups):
        for r in members:
            np.testing.assert_allclose(found["w"][r], expected[g], rtol=1e-5, atol=1e-6)


def test_all_replicas_retrieval():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    mode = popart.VariableRetrievalMode.AllReplicas
    w0 = np.arange(6, dtype=np.float32).reshape(2, 3)
    settings = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Consecutive, 2), mode)
    w = builder.addInitializedInputTensor(w0, settings, "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], reduction=popart.ReductionType.Sum)
    session = train(builder.getModelProto(), {loss: "Sum"}, sgd(), 1, loss=loss, **replicated(4))
    got = weights_of(session, w=np.empty((4, 3), np.float32))["w"]
    np.testing.assert_array_equal(got, w0[[0, 0, 1, 1]])


@pytest.mark.parametrize("which", ["all", "one"])
def test_clipping(which):
    """Plain SGD clips the reduced gradient, loss scale included."""
    text = """g (float[3] x) => (float loss) {
        y = Mul(x, w)
        z = Mul(y, v)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(z)
    }"""
    w, v = np.asarray([1, 2, 3], np.float32), np.asarray([3, 1, 2], np.float32)
    clip = (
        popart.ClipNormSettings.clipAllWeights(1.5)
        if which == "all"
        else popart.ClipNormSettings.clipWeights(["w"], 1.5)
    )
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "lossScaling": (2.0, True)}, [clip])
    session = train(model(text, w=w, v=v), {"GlobalNorm___0": "All"}, optimizer)
    x = _x()
    gw, gv = 2 * x * v, 2 * x * w
    norm = np.sqrt((gw**2).sum() + ((gv**2).sum() if which == "all" else 0))
    found = run(session, x=x)
    np.testing.assert_allclose(found["GlobalNorm___0"], norm, rtol=1e-6)
    factor = 1.5 / max(1.5, norm)
    got = weights_of(session, w=w, v=v)
    np.testing.assert_allclose(got["w"], w - 0.25 * factor * gw, rtol=1e-5)
    np.testing.assert_allclose(got["v"], v - 0.25 * (factor if which == "all" else 1) * gv, rtol=1e-5)


def test_clipping_across_groupings():
    """A weight per replica and one of all: norms differ, the shared weight follows that of its lowest replica."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    own = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Ungrouped, 0))
    w0, v0 = np.asarray([[1, 2, 3], [4, 5, 6]], np.float32), np.asarray([1, 1, 2], np.float32)
    w, v = builder.addInitializedInputTensor(w0, own, "w"), builder.addInitializedInputTensor(v0, "v")
    product = builder.aiOnnx.mul([builder.aiOnnx.mul([x, w]), v])
    loss = builder.aiGraphcore.identityloss([product], reduction=popart.ReductionType.Sum)
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True)}, [popart.ClipNormSettings.clipAllWeights(1.5)])
    session = train(builder.getModelProto(), {loss: "All"}, optimizer, 1, loss=loss, **replicated(2))
    data = _x(2)
    run(session, **{x: data})
    of_w, of_v = data * v0, (data * w0).sum(0)
    factors = 1.5 / np.maximum(1.5, np.sqrt((of_w**2).sum(1) + (of_v**2).sum()))
    assert factors[0] != factors[1]
    got = weights_of(session, w=w0, v=v0)
    np.testing.assert_allclose(got["w"], w0 - 0.5 * factors[:, None] * of_w, rtol=1e-5)
    np.testing.assert_allclose(got["v"], v0 - 0.5 * factors[0] * of_v, rtol=1e-5)


def test_clip_of_an_unknown_weight():
    proto, _ = linear()
    clip = popart.ClipNormSettings.clipWeights(["nope"], 1.0)
    with pytest.raises(popart.popart_exception, match="Could not find a varupdate op for tensor nope"):
        train(proto, {"loss": "Sum"}, popart.SGD({}, [clip]))


def test_weights_off_the_path_do_not_decay():
    text = """g (float[3] x) => (float loss) {
        d = ai.graphcore.Detach(v)
        y = Mul(x, w)
        z = Add(y, d)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(z)
    }"""
    w = np.ones(3, np.float32)
    optimizer = sgd(0.5, defaultWeightDecay=(0.1, True))
    session = train(model(text, w=w, v=2 * w), {"loss": "Sum"}, optimizer)
    run(session, x=_x())
    got = weights_of(session, w=w, v=w)
    np.testing.assert_array_equal(got["v"], 2 * w)
    assert (got["w"] != w).all()


def test_indices_of_run_time_out_of_range_give_no_gradient():
    """Negative ones are out of range like those past the end; constant ones count from the end."""
    table = np.ones((3, 2), np.float32)
    text = """g (int32[4] i) => (float loss) {
        y = Gather(w, i)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y)
    }"""
    session = train(model(text, w=table), {"Gradient___w": "All"}, sgd())
    found = run(session, i=np.asarray([0, -1, 2, 3], np.int32))
    np.testing.assert_array_equal(found["Gradient___w"], [[1, 1], [0, 0], [1, 1]])


@pytest.mark.usefixtures("popart_names")
def test_integer_initializer_refused():
    text = "g (float[3] x) => (float[3] loss) { i = Cast<to = 1>(n)\n y = Mul(x, i)\n loss = Mul(y, w) }"
    proto = model(text, n=np.ones(3, np.int32), w=np.ones(3, np.float32))
    with pytest.raises(
        popart.popart_exception, match="Currently only floating point variable tensors are updatable"
    ) as caught:
        train(proto, {"loss": "Sum"}, sgd())
    assert "popart_jax.to_jax takes the model" in caught.value.__notes__[-1]


@pytest.mark.parametrize(
    ("loss", "text"),
    [("nope", "Could not find loss tensor"), ("y", "must be a scalar tensor"), ("x", "does not have a producer")],
)
def test_bad_losses(loss, text):
    proto, _ = linear()
    with pytest.raises(popart.popart_exception, match=text):
        train(proto, {"y": "All"}, sgd(), loss=loss)


def test_forward_only_program():
    proto, w = linear()
    session = train(proto, {"y": "All", "loss": "Sum", "w": "Final"}, sgd(0.5), B, **accumulated(A))
    from popart_jax.session.engine import FORWARD_ONLY

    session._engine.compile((FORWARD_ONLY,))
    x, found = _x(B, A), session.initAnchorArrays()
    run(session, x=x)
    after = weights_of(session, w=w)["w"]
    session.run(FORWARD_ONLY, popart.PyStepIO({"x": x}, found))
    np.testing.assert_allclose(found["y"], x * after, rtol=1e-6)
    np.testing.assert_allclose(found["w"], after)
    np.testing.assert_array_equal(weights_of(session, w=w)["w"], after)


def test_failing_callback_leaves_weights():
    """A program with host callbacks keeps its old state until the step is through."""
    text = """g (float[3] x) => (float loss) {
        y = Mul(x, w)
        s = ai.graphcore.IdentityLoss<reduction = "Sum">(y)
        z = ai.graphcore.PrintTensor(s)
        loss = Identity(z)
    }"""
    w = np.ones(3, np.float32)
    session = train(model(text, w=w), {"loss": "All"}, sgd(0.5))
    before = dict(session._engine.changing)
    run(session, x=_x())
    assert not any(array.is_deleted() for array in before.values())
    assert (weights_of(session, w=w)["w"] != w).all()


@pytest.mark.parametrize(("activation", "warned"), [("prelu", True), ("relu", False), ("detach", False)])
def test_weights_behind_an_operator_without_gradient_are_named(activation, warned, caplog):
    """PReLU has no gradient in PopART (semantics, surprise 21); a Detach is asked for."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w, v = (builder.addInitializedInputTensor(np.ones((3, 3), np.float32), name) for name in "wv")
    slope = builder.addInitializedInputTensor(np.ones(3, np.float32), "slope")
    h = builder.aiOnnx.matmul([x, w])
    calls = {
        "prelu": lambda: builder.aiOnnx.prelu([h, slope]),
        "relu": lambda: builder.aiOnnx.relu([h]),
        "detach": lambda: builder.aiGraphcore.detach([h]),
    }
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([calls[activation](), v])], 0.1)
    flow, device = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    with caplog.at_level("WARNING"):
        popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
    assert ("PRelu has no gradient in PopART" in caplog.text) == warned
    assert ("are not trained: 'slope', 'w'." in caplog.text) == warned


@pytest.mark.parametrize(("name", "warned"), [("w", False), ("W", True)])
def test_values_of_a_weight_that_does_not_exist_are_said_to_have_no_effect(name, warned, caplog):
    optimizer = sgd(0.5)
    optimizer.insertSpecific(name, {"learningRate": (0.25, True)})
    with caplog.at_level("WARNING"):
        session = train(linear()[0], {"loss": "Sum"}, optimizer)
    assert ("insertSpecific was called for 'W', which is no weight of the model" in caplog.text) == warned
    run(session, x=np.ones(3, np.float32))
    np.testing.assert_allclose(weights_of(session, w=linear()[1])["w"], linear()[1] - (0.5 if warned else 0.25))


@pytest.mark.parametrize(("name", "warned"), [("onnx::MatMul_7", True), ("head.weight", False)])
def test_a_weight_that_is_stored_twice_is_named(name, warned, caplog):
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    text = """g (int32[4] i) => (float loss) {
        e = Gather(w, i) y = MatMul(e, other)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y)
    }"""
    proto = onnx.load_model_from_string(model(text, w=table, other=table.T.copy()))
    proto.graph.node[1].input[1] = proto.graph.initializer[1].name = proto.graph.input[-1].name = name
    with caplog.at_level("WARNING"):
        train(proto.SerializeToString(), {"loss": "All"}, sgd())
    assert (f"'{name}' is 'w' transposed" in caplog.text) == warned
