"""Stochastic rounding: half results are right on average, replicas stay equal, models of IPUs round to nearest."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import popart_jax as popart
from popart_jax.lowering.rounding import to_half

from . import nets
from .nets import accumulated, linear, model, replicated, run, sgd


def test_the_average_is_the_value():
    """Between two halves, below the least normal one, at the ends of the range."""
    x = np.asarray([1 + 2**-12, -1 + 2**-13, 3e-8, -5e-8, 0.1, 2**-14 * (1 + 2**-12), 65471], np.float32)
    keys = jax.vmap(jax.random.key)(np.arange(4000))
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: to_half(x, key)))(keys))
    neighbours = [
        (np.nextafter(v, np.float16(-np.inf)), v, np.nextafter(v, np.float16(np.inf))) for v in x.astype(np.float16)
    ]
    assert all(set(drawn[:, i]) <= set(near) for i, near in enumerate(neighbours))
    spacing = np.asarray([float(near[2]) - float(near[0]) for near in neighbours])
    np.testing.assert_array_less(np.abs(drawn.astype(np.float64).mean(0) - x), 0.02 * spacing)


def test_halves_and_what_is_no_number_stay():
    halves = np.random.default_rng(0).normal(size=1000).astype(np.float16)
    np.testing.assert_array_equal(to_half(halves.astype(np.float32), jax.random.key(0)), halves)
    odd = np.asarray([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e9, 65520], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(to_half(odd, jax.random.key(0)), odd.astype(np.float16))


def test_one_key_serves_many_places_and_values():
    """Equal values in many places, values that differ by little, small numbers: all are right on average."""
    n = 40000
    spread = 1 + np.random.default_rng(0).uniform(size=n) * 2**-10
    for x in (np.full(n, 1 + 2**-12), spread, np.full(n, 3e-9), -spread):
        x = x.astype(np.float32)
        error = (np.asarray(to_half(x, jax.random.key(7))).astype(np.float64) - x) / np.spacing(
            np.abs(x).astype(np.float16)
        )
        assert abs(error.mean()) < 4 * 0.5 / np.sqrt(n)
        apart = [np.corrcoef(error[:-lag], error[lag:])[0, 1] for lag in (1, 2, 16, 256)]
        np.testing.assert_array_less(np.abs(apart), 5 / np.sqrt(n))


def test_places_and_steps_draw_for_themselves():
    """Neighbours, and the keys of steps, which count upwards."""
    x = np.full(1 << 18, 1 + 2**-11, np.float32)  # half-way between two halves
    keys = [jax.random.wrap_key_data(np.asarray([high, 100 + high], np.uint32)) for high in (50, 51)]
    one, other = (np.asarray(to_half(x, key)).astype(np.float64) > 1 for key in keys)
    pairs = [(one, other), (one[1:], other[:-1]), (one[:-1], other[1:])]
    pairs += [(one[:-lag], one[lag:]) for lag in (1, 2, 64, 512)]
    assert max(abs(np.corrcoef(a, b)[0, 1]) for a, b in pairs) < 5 / 2**9


@pytest.fixture
def ipus():
    with popart.DeviceManager().acquireAvailableDevice(2) as device:
        yield device


def _session(device, optimizer, batches, anchors, **options):
    proto, _ = linear(np.float16)
    session = popart.TrainingSession(
        proto, nets.flow(batches, dict.fromkeys(anchors, "All")), "loss", optimizer, device,
        userOptions=nets.make_options(enableStochasticRounding=True, **replicated(2), **options),
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    session.setRandomSeed(3)
    return session


MOMENTUM = {"defaultLearningRate": (1e-5, True), "defaultMomentum": (0.5, True), "defaultDampening": (0.5, True)}
OPTIMIZERS = {
    "sgd": sgd(1e-5),
    "momentum": popart.SGD(MOMENTUM),
    "separate": popart.SGD(MOMENTUM, accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate),
}


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_updates_too_small_for_half_add_up(ipus, optimizer, accumulation):
    """Each update is a hundredth of the weight's spacing; rounding to nearest would lose all of them."""
    batches = 2000
    options = accumulated(accumulation) if accumulation > 1 else {}
    session = _session(ipus, optimizer, batches, ["UpdatedVar___w"], **options)
    found = run(session, x=np.ones((batches, accumulation, 2, 3), np.float16))["UpdatedVar___w"].reshape(-1, 2, 3)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    moved = np.asarray([1, 2, 3]) - found[-1, 0]
    np.testing.assert_allclose(moved, 1e-5 * batches * 2 * accumulation, rtol=0.5)
    assert (moved > 0).all()


def test_operators_round_at_random_and_gradients_with_them():
    """1 + 2**-12 is no half: a product that should be that comes out as 1 or as the next number."""
    text = """g (float16[4000] x) => (float16 loss) {
        y = Mul(x, w)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y)
    }"""
    w = np.full(4000, 1 + 2**-6, np.float16)
    x = np.full(4000, 1 - 2**-6 + 2**-11, np.float16)
    options = nets.make_options(enableStochasticRounding=True)
    one = popart.DeviceManager().acquireAvailableDevice(1)
    flow = nets.flow(1, {"y": "All", "Gradient___x": "All"})
    optimizer = popart.SGD({"defaultLearningRate": (1e-9, True), "lossScaling": (float(x[0]), True)})
    session = popart.TrainingSession(model(text, w=w), flow, "loss", optimizer, one, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    found = run(session, x=x)
    exact = float(x[0]) * float(w[0])
    for name in ("y", "Gradient___x"):
        assert len(set(found[name])) == 2
        np.testing.assert_allclose(found[name].astype(np.float64).mean(), exact, atol=1e-4)
    again = run(session, x=x)
    assert (again["y"] != found["y"]).any()
    one.detach()


def _infer(text: str, x: np.ndarray, times: int, **weights: np.ndarray) -> np.ndarray:
    """The results of so many batches of the same data."""
    options = nets.make_options(enableStochasticRounding=True)
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        flow = nets.flow(times, {"y": "All"})
        session = popart.InferenceSession(model(text, **weights), flow, device, userOptions=options)
        session.prepareDevice()
        session.setRandomSeed(1)
        return run(session, x=np.stack([x] * times))["y"].astype(np.float64)


def _lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Outputs of one direction without biases, gates in ONNX's order i, o, f, c."""
    h = c = np.zeros((x.shape[1], r.shape[-1]))
    found = []
    for step in x.astype(np.float64):
        i, o, f, g = np.split(step @ w[0].T.astype(np.float64) + h @ r[0].T.astype(np.float64), 4, -1)
        i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        found.append(h)
    return np.stack(found)[:, None]


def _normalised(x: np.ndarray) -> np.ndarray:
    scale, bias, mean, var = (NORM[n].astype(np.float64) for n in ("scale", "bias", "mean", "var"))
    return (x - mean) / np.sqrt(var + 1e-5) * scale + bias


X = np.random.default_rng(0).normal(size=(64, 50, 4)).astype(np.float16)
CELL = {
    n: np.random.default_rng(i).normal(size=(1, 12, s)).astype(np.float16)
    for i, (n, s) in enumerate({"w": 4, "r": 3}.items())
}
NORM = {n: np.asarray([1, 2, 0.5, 1.5], np.float16) for n in ("scale", "bias", "mean", "var")}
ROUNDING = {
    "softmax": ("Softmax<axis = 2>(x)", {}, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "cast": ("Cast<to = 10>(x)", {}, lambda x: x),
    "normalisation": (
        "BatchNormalization(t, scale, bias, mean, var)", NORM,
        lambda x: _normalised(x).swapaxes(1, 2),
    ),
    "recurrent": ("LSTM<hidden_size = 3>(x, w, r)", CELL, lambda x: _lstm(x, CELL["w"], CELL["r"])),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROUNDING)
def test_results_are_right_on_average(kind):
    """Errors of rounding to nearest stay where they are; at random they vanish over the batches, one by one."""
    call, weights, reference = ROUNDING[kind]
    wide = kind == "cast"
    x = X.astype(np.float32) * np.float32(1.0001) if wide else X
    turned = "t = Transpose<perm = [0, 2, 1]>(x) " if kind == "normalisation" else ""
    text = f"g ({'float' if wide else 'float16'}[64,50,4] x) => (float16 y) {{ {turned}y = {call} }}"
    runs = _infer(text, x, 16, **weights)
    exact = reference(x.astype(np.float64))
    size = np.maximum(np.abs(exact), 2.0**-6).astype(np.float16)  # smaller differences have errors of their own
    errors = (runs - exact) / np.spacing(size).astype(np.float64)
    assert np.abs(errors).max() <= 1.01  # one of the two neighbours
    assert errors.std(0).mean() > 0.25  # uniform in [0, 1) has 0.41 on average
    assert np.abs(errors.mean(0)).mean() < 0.12  # rounding to nearest: 0.25


def _cycles(products: int, rounding: bool) -> int:
    """Modelled cycles of so many products, on hardware."""
    lines = " ".join(f"t{i + 1} = Mul(t{i}, t{i})" for i in range(products))
    text = f"g (float16[64,64] t0) => (float16 t{products}) {{ {lines} }}"
    options = nets.make_options(enableStochasticRounding=rounding, instrumentWithHardwareCycleCounter=True)
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        flow = nets.flow(1, {f"t{products}": "All"})
        session = popart.InferenceSession(model(text), flow, device, userOptions=options)
        session.prepareDevice()
        run(session, t0=np.ones((64, 64), np.float16))
        return session.getCycleCount()


def test_rounding_is_free_on_an_ipu():
    """Its units round so by themselves, in half precision: all that the program pays for is its seed."""
    extra = {_cycles(products, True) - _cycles(products, False) for products in (1, 4)}
    assert len(extra) == 1
    assert 0 <= extra.pop() < 1000


def test_a_model_of_an_ipu_rounds_to_nearest():
    proto, w = linear(np.float16)
    session = nets.train(proto, {"UpdatedVar___w": "All"}, sgd(1e-5), 5, enableStochasticRounding=True)
    found = run(session, x=np.ones((5, 3), np.float16))["UpdatedVar___w"]
    np.testing.assert_array_equal(found, np.broadcast_to(w, (5, 3)))


def test_the_generators_belong_to_the_device():
    """A state that is set again makes runs repeat; what another session rounds in between changes it."""
    text = "g (float16[64] x) => (float16 y) { y = Mul(x, w) }"
    options = nets.make_options(enableStochasticRounding=True, enableLoadAndOffloadRNGState=True)
    proto, x = model(text, w=np.full(64, 1 / 3, np.float16)), np.full(64, 0.37, np.float16)
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        one, two = (
            popart.InferenceSession(proto, nets.flow(1, {"y": "All"}), device, userOptions=options) for _ in range(2)
        )
        for session in (one, two):
            session.prepareDevice()
        one.setRandomSeed(1)
        start = one.getRNGState()
        assert any(start)
        expected = [run(one, x=x)["y"] for _ in range(2)]
        assert start != one.getRNGState()
        assert (expected[0] != expected[1]).any()
        for between, changed in ((lambda: None, False), (lambda: run(two, x=x), True)):
            one.setRNGState(start)
            assert one.getRNGState() == start
            np.testing.assert_array_equal(run(one, x=x)["y"], expected[0])
            between()
            assert (run(one, x=x)["y"] != expected[1]).any() == changed
