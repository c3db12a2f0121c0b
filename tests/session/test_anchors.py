"""Anchors: kinds, shapes, timing of variables, gradients, scalars and intermediate tensors."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from .nets import accumulated, flow, infer, linear, model, replicated, run, sgd, train

B, A, R = 4, 2, 2


def _steps(n=3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(B, A, R, n)).astype(np.float32)


KINDS = {
    "All": lambda v: v,
    "Final": lambda v: v[-1, -1],
    "Sum": lambda v: v.sum((0, 1)),
    ("EveryN", 2): lambda v: v.reshape(B * A, R, *v.shape[3:])[1::2].reshape(B // 2, A, R, *v.shape[3:]),
    ("EveryN", 4): lambda v: v.reshape(B * A, R, *v.shape[3:])[3::4].reshape(A, R, *v.shape[3:]),
}


@pytest.mark.parametrize("kind", ["All", "Final", "Sum"])
def test_kinds_in_explicit_main_loops(kind):
    proto, w = linear()
    loops = {"useHostCopyOps": True, "enableExplicitMainLoops": True}
    session = train(proto, {"y": kind}, sgd(1e-30), B, **accumulated(A), **loops)
    x = _steps()[:, :, 0]
    wanted = KINDS[kind](x * w)
    np.testing.assert_allclose(run(session, x=x)["y"], wanted, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    """Activation, loss, gradient and input, with batches, accumulation and replicas; the rate is next to zero."""
    proto, w = linear()
    session = train(
        proto, dict.fromkeys(("y", "loss", "Gradient___y", "x"), kind), sgd(1e-30), B, **accumulated(A), **replicated(R)
    )
    x = _steps()
    found = run(session, x=x)
    expected = {"y": x * w, "loss": (x * w).sum(-1), "Gradient___y": np.ones_like(x), "x": x}
    for name, value in expected.items():
        want = KINDS[kind](value)
        assert found[name].shape == want.shape
        np.testing.assert_allclose(found[name], want, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("batches", "factor", "count", "lead"), [(1, 1, 1, ()), (3, 1, 1, (3,)), (1, 2, 1, (2,)), (3, 1, 2, (3, 2))]
)
def test_leading_dimensions_of_one_vanish(batches, factor, count, lead):
    proto, _ = linear()
    options = {**(accumulated(factor) if factor > 1 else {}), **(replicated(count) if count > 1 else {})}
    session = train(proto, {"y": "All", "loss": "Final"}, sgd(), batches, **options)
    arrays = session.initAnchorArrays()
    assert arrays["y"].shape == (*lead, 3)
    assert arrays["loss"].shape == ((count,) if count > 1 else ())


def test_weights_without_accumulation_show_the_updated_value():
    proto, w = linear()
    session = train(proto, {"w": "All", "UpdatedVar___w": "All"}, sgd(0.5), B)
    x = _steps()[:, 0, 0]
    found = run(session, x=x)
    expected = w - 0.5 * np.cumsum(x, 0)
    np.testing.assert_allclose(found["w"], expected, rtol=1e-5)
    np.testing.assert_allclose(found["UpdatedVar___w"], expected, rtol=1e-5)


def test_weights_with_accumulation_show_the_old_value():
    proto, w = linear()
    names = {"w": "All", "Accum___w": "All", "UpdatedVar___w": "Final"}
    session = train(proto, names, sgd(0.5), B, **accumulated(A))
    x = _steps()[:, :, 0]
    found = run(session, x=x)
    after = w - 0.5 * np.cumsum(x.sum(1), 0)
    before = np.concatenate([w[None], after[:-1]])
    np.testing.assert_allclose(found["w"], np.repeat(before[:, None], A, 1), rtol=1e-5)
    np.testing.assert_allclose(found["Accum___w"], np.cumsum(x, 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["UpdatedVar___w"], after[-1], rtol=1e-5)


def test_one_micro_batch_tells_all_from_final():
    """With gradient accumulation All is the value before the update, also where a step has one micro-batch."""
    proto, w = linear()
    x = _steps()[0, 0, 0]
    for kind, want in {"All": w, "Final": w - 0.5 * x}.items():
        session = train(proto, {"w": kind}, sgd(0.5), 1, **accumulated(1))
        np.testing.assert_allclose(run(session, x=x)["w"], want, rtol=1e-6)


def test_final_shows_the_end_of_the_step():
    proto, w = linear()
    session = train(proto, {"w": "Final", "Accum___w": "Final"}, sgd(0.5), B, **accumulated(A))
    x = _steps()[:, :, 0]
    found = run(session, x=x)
    np.testing.assert_allclose(found["w"], w - 0.5 * x.sum((0, 1)), rtol=1e-5)
    assert not found["Accum___w"].any()


def test_accumulators_are_per_replica():
    proto, _ = linear()
    session = train(proto, {"Accum___w": "All"}, sgd(0.5), 1, **accumulated(A), **replicated(R))
    x = _steps()[0]
    np.testing.assert_allclose(run(session, x=x)["Accum___w"], np.cumsum(x, 0), rtol=1e-5)


def test_combined_velocity():
    """Accl holds the velocity decayed for the coming batch, and its first value contains the decay of the weight."""
    proto, w = linear()
    optimizer = sgd(0.1, defaultMomentum=(0.9, True), defaultWeightDecay=(0.01, True))
    session = train(proto, {"Accl___w": "All", "w": "All"}, optimizer, 2)
    x = _steps()[:2, 0, 0]
    found = run(session, x=x)
    v, weight = 0.01 * w, w
    for b in range(2):
        v = v + x[b]
        weight = weight - 0.1 * v
        v = 0.9 * v + 0.01 * weight
        np.testing.assert_allclose(found["w"][b], weight, rtol=1e-5)
        np.testing.assert_allclose(found["Accl___w"][b], v, rtol=1e-5)


def test_gradients_carry_the_loss_scale():
    proto, _ = linear()
    names = {"Gradient___w": "All", "Gradient___loss": "All", "Gradient___x": "All", "lossScaling_FLOAT": "All"}
    session = train(proto, names, sgd(0.1, lossScaling=(8.0, False)), 1)
    x = _steps()[0, 0, 0]
    found = run(session, x=x)
    np.testing.assert_allclose(found["Gradient___w"], 8 * x)
    np.testing.assert_allclose(found["Gradient___x"], 8 * np.asarray([1, 2, 3]))
    assert found["Gradient___loss"] == found["lossScaling_FLOAT"] == 8


def test_optimizer_scalars():
    """Computed in float32 on the host; programs compare them bit for bit."""
    proto, _ = linear()
    optimizer = popart.SGD({"defaultLearningRate": (0.3, False), "defaultWeightDecay": (0.07, False),
                            "defaultDampening": (0.2, True), "lossScaling": (3.0, True)})  # fmt: skip
    names = {f"{n}___default___FLOAT": "All" for n in ("scaledLearningRate0", "weightDecayScaleFactor0")}
    found = run(train(proto, names, optimizer, 1), x=_steps()[0, 0, 0])
    lr, wd, dm, ls = map(np.float32, (0.3, 0.07, 0.2, 3))
    assert found["scaledLearningRate0___default___FLOAT"] == lr * (1 - dm) / ls
    assert found["weightDecayScaleFactor0___default___FLOAT"] == 1 - lr * (1 - dm) * wd


def test_scalars_of_half_weights_have_one_name():
    """The name has the weight's type, for anchors as for the op list; the learning rate itself is FLOAT."""
    proto, _ = linear(np.float16)
    name = "scaledLearningRate0___default___FLOAT16"
    session = train(proto, {name: "All"}, popart.SGD({"defaultLearningRate": (0.25, False)}))
    found = run(session, x=np.ones(3, np.float16))[name]
    assert (found.dtype, float(found)) == (np.float32, 0.25)
    assert all(i.endswith("FLOAT16") for i in session.getTensorIds() if "___default___" in i)


STATISTICS = """m (float[2,3,4] x) => (float loss)
    { y, s, t, p, q = BatchNormalization(x, g, b, m, v) z = Mul(y, w) a = Mul(z, z) loss = ReduceSum<keepdims=0>(a) }"""


@pytest.mark.parametrize("name", ["m", "v", "Accl1___w", "Accl2___w", "Step___w"])
@pytest.mark.parametrize("factor", [1, 2])
def test_updated_values_of_statistics_and_state(name, factor):
    """What a variable is after the update, as for weights; accumulation shows the variable before it."""
    weights = {n: np.full(3, n in "gv", np.float32) for n in "gbmv"} | {"w": np.ones(4, np.float32)}
    adam = popart.Adam({"defaultLearningRate": (0.1, False)})
    options = accumulated(factor) if factor > 1 else {}
    updated = f"UpdatedVar___{name}"
    session = train(model(STATISTICS, **weights), {updated: "All", name: "Final"}, adam, 2, **options)
    found = run(session, x=np.random.default_rng(0).normal(size=(2, factor, 2, 3, 4)).astype(np.float32))
    after = found[updated].reshape(2, factor, *found[name].shape)
    np.testing.assert_array_equal(after[-1, -1], found[name])
    assert not np.array_equal(after[0, 0], after[-1, -1])


def test_constant_scalars_are_no_tensors():
    proto, _ = linear()
    with pytest.raises(popart.popart_exception, match="not in Ir Tensors"):
        train(proto, {"scaledLearningRate0___default___FLOAT": "All"}, sgd(0.1), 1)


def test_specific_scalars():
    proto, _ = linear()
    optimizer = sgd(0.1, False)
    optimizer.insertSpecific("w", {"learningRate": (0.25, False)})
    found = run(train(proto, {"scaledLearningRate0___specific___w": "All"}, optimizer, 1), x=_steps()[0, 0, 0])
    assert found["scaledLearningRate0___specific___w"] == 0.25


def test_unknown_anchor():
    proto, _ = linear()
    with pytest.raises(popart.popart_exception, match="Anchor tensor `nope' not in Ir Tensors"):
        infer(proto, {"nope": "All", "y": "All"})


def test_gradient_of_a_tensor_off_the_path():
    text = """g (float[3] x) => (float loss) {
        y = Mul(x, w)
        z = Sigmoid(x)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y)
    }"""
    proto = model(text, w=np.ones(3, np.float32))
    with pytest.raises(popart.popart_exception, match="Interestingly, `z' IS in tensors"):
        train(proto, {"Gradient___z": "All"}, sgd(), 1)


def test_anchors_change_no_values():
    """Weights after training are bitwise equal whatever is anchored, dropout included."""
    text = """g (float[4,8] x) => (float loss) {
        h = MatMul(x, w)
        r = Relu(h)
        d, m = Dropout<ratio = 0.5>(r)
        loss = ai.graphcore.L1<lambda = 0.1, reduction = "Sum">(d)
    }"""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(8, 5)).astype(np.float32)
    x = rng.normal(size=(2, 4, 8)).astype(np.float32)
    results = []
    for names in ({"loss": "Sum"}, {"loss": "All", "h": "All", "m": "All", "Gradient___r": "Final", "w": "All"}):
        session = train(model(text, w=w), names, sgd(0.1), 2)
        session.setRandomSeed(7)
        run(session, x=x)
        got = {"w": np.empty_like(w)}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(got))
        results.append(got["w"])
    np.testing.assert_array_equal(*results)


def test_anchors_change_no_random_numbers():
    """Layout passes work around anchors; dropout draws the same numbers all the same."""
    text = """g (float[2,3,8,8] x) => (float loss) {
        c = Conv<pads = [1, 1, 1, 1]>(x, k)
        r = Relu(c)
        f = Flatten(r)
        d, m = Dropout<ratio = 0.5>(f)
        loss = ai.graphcore.L1<lambda = 0.1, reduction = "Sum">(d)
    }"""
    rng = np.random.default_rng(0)
    k, x = (rng.normal(size=s).astype(np.float32) for s in ((4, 3, 3, 3), (2, 3, 8, 8)))
    masks = []
    for names in ({"m": "All"}, {"m": "All", "c": "All", "r": "All", "Gradient___r": "All"}):
        session = train(model(text, k=k), names, sgd(0.1))
        session.setRandomSeed(7)
        masks.append(run(session, x=x)["m"])
    np.testing.assert_array_equal(*masks)


def test_every_n_must_divide():
    with pytest.raises(popart.popart_exception, match="factor of the number of batches"):
        flow(4, {"x": ("EveryN", 3)})


def test_integer_anchor_keeps_int64():
    text = """g (int64[3] x) => (int64[3] y) {
        y = Add(x, x)
    }"""
    session = infer(model(text), {"y": "All"})
    assert session.getInfo("y").data_type() == "INT64"
    found = run(session, x=np.asarray([1, -2, 3]))
    assert found["y"].dtype == np.int64
    np.testing.assert_array_equal(found["y"], [2, -4, 6])


def test_counter_of_the_running_mean():
    """The number of micro-batches that the mean holds; reset to zero with the accumulators."""
    proto, _ = linear()
    mean = {
        "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
        "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running,
    }
    for kind, expected in (("All", [[1, 2], [1, 2]]), ("Final", 0)):
        session = train(proto, {"Counter___mean": kind}, sgd(), 2, **accumulated(2), **mean)
        np.testing.assert_array_equal(run(session, x=np.ones((2, 2, 3), np.float32))["Counter___mean"], expected)
    with pytest.raises(popart.popart_exception, match="not in Ir Tensors"):
        train(proto, {"Counter___mean": "All"}, sgd(), 2, **accumulated(2))
