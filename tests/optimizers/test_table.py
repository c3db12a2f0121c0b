"""Every optimizer mode over several steps with changing hyperparameters, against float64 NumPy and torch.optim."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from popart_jax.enums import AdamMode, AdaptiveMode, SGDAccumulatorAndMomentum, WeightDecayMode
from popart_jax.optimizers import SGD, Adam, Adaptive
from popart_jax.optimizers.rules import Reduction

from . import reference
from .harness import run_rule

STEPS, SHAPE = 4, (3, 2)
STRUCTURES = [
    reference.Setting(),
    reference.Setting(replicas=2),
    reference.Setting(replicas=2, mean=True),
    reference.Setting(replicas=2, mean=True, running=True),
    reference.Setting(accumulate=True, micro=3),
    reference.Setting(accumulate=True, micro=3, replicas=2),
    reference.Setting(accumulate=True, micro=3, replicas=2, mean=True),
    reference.Setting(accumulate=True, micro=3, replicas=2, mean=True, running=True),
]
IDS = ["plain", "R", "R-mean", "R-running", "A", "AR", "AR-mean", "AR-running"]
structures = pytest.mark.parametrize("setting", STRUCTURES, ids=IDS)


def _gradients(setting: reference.Setting) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(STEPS, setting.micro, setting.replicas, *SHAPE))


def _compare(optimizers, values, equation, setting):
    w0 = np.random.default_rng(0).normal(size=SHAPE)
    grads = _gradients(setting)
    reduction = Reduction(setting.accumulate, setting.micro, setting.replicas, setting.mean, setting.running)
    ours, _ = run_rule(optimizers, grads, w0.astype(np.float32), reduction)
    trained = reference.Trained(w0)
    for h, g in zip(values, grads, strict=True):
        equation(trained, g, h, setting)
    np.testing.assert_allclose(ours, trained.w, rtol=2e-4, atol=2e-5)
    assert abs(ours - w0).max() > 1e-3


def _sgd_values(momentum: bool, nesterov: bool) -> list[dict]:
    return [
        {
            "lr": 0.1 / (i + 1), "wd": 0.02 * i, "mm": (0.9 - 0.1 * i) if momentum else 0.0,
            "dm": 0.0 if nesterov else 0.1 * i, "vs": 1.5, "ls": 2.0**i, "nesterov": nesterov,
        }
        for i in range(STEPS)
    ]  # fmt: skip


def _sgd(h: dict, mode, momentum: bool) -> SGD:
    return SGD(
        {
            "defaultLearningRate": (h["lr"], False), "defaultWeightDecay": (h["wd"], False),
            "defaultMomentum": (h["mm"], not momentum), "defaultDampening": (h["dm"], False),
            "defaultVelocityScaling": (h["vs"], False), "lossScaling": (h["ls"], False),
            "nesterov": (float(h["nesterov"]), True),
        },
        accumulatorAndMomentum=mode,
    )  # fmt: skip


@structures
def test_sgd_without_momentum(setting):
    values = _sgd_values(False, False)
    optimizers = [_sgd(h, SGDAccumulatorAndMomentum.Combined, False) for h in values]
    _compare(optimizers, values, reference.sgd, setting)


@structures
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("mode", list(SGDAccumulatorAndMomentum))
def test_sgd_with_momentum(setting, mode, nesterov):
    values = _sgd_values(True, nesterov)
    combined = mode is SGDAccumulatorAndMomentum.Combined
    equation = reference.sgd_combined if combined else reference.sgd_separate
    _compare([_sgd(h, mode, True) for h in values], values, equation, setting)


def _adam_values(mode: AdamMode, l2: bool) -> list[dict]:
    return [
        {
            "lr": 0.1 / (i + 1), "wd": 0.03 * i, "b1": 0.9 - 0.05 * i, "b2": 0.99 - 0.02 * i, "eps": 1e-4,
            "ls": 2.0**i, "mwn": 1.0 + i, "mode": mode.name, "l2": l2,
        }
        for i in range(STEPS)
    ]  # fmt: skip


@structures
@pytest.mark.parametrize("l2", [False, True])
@pytest.mark.parametrize("mode", list(AdamMode))
def test_adam(setting, mode, l2):
    values = _adam_values(mode, l2)
    decay = WeightDecayMode.L2Regularization if l2 else WeightDecayMode.Decay
    names = {"lr": "defaultLearningRate", "wd": "defaultWeightDecay", "b1": "defaultBeta1", "b2": "defaultBeta2",
             "eps": "defaultEps", "ls": "lossScaling", "mwn": "defaultMaxWeightNorm"}  # fmt: skip
    optimizers = [Adam({n: (h[k], False) for k, n in names.items()}, mode, decay) for h in values]
    _compare(optimizers, values, reference.adam, setting)


ADAPTIVE = [
    *itertools.product(AdaptiveMode, [False]),
    (AdaptiveMode.RMSProp, True),
    (AdaptiveMode.CenteredRMSProp, True),
]


@structures
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("l2", [False, True])
@pytest.mark.parametrize(("mode", "tf"), ADAPTIVE)
def test_adaptive(setting, mode, tf, l2, momentum):
    values = [
        {
            "lr": 0.1 / (i + 1), "wd": 0.03 * i, "a": 0.9 - 0.05 * i, "mm": 0.5 + 0.1 * i if momentum else None,
            "eps": 1e-3, "ls": 2.0**i, "mode": mode.name, "tf": tf, "l2": l2,
        }
        for i in range(STEPS)
    ]  # fmt: skip
    decay = WeightDecayMode.L2Regularization if l2 else WeightDecayMode.Decay
    names = {"lr": "defaultLearningRate", "wd": "defaultWeightDecay", "a": "defaultAlpha", "eps": "defaultEps",
             "ls": "lossScaling"}  # fmt: skip
    optimizers = [
        Adaptive(
            {n: (h[k], False) for k, n in names.items()} | ({"defaultMomentum": (h["mm"], False)} if momentum else {}),
            mode, decay, rmsprop_tf_variant=tf,
        )
        for h in values
    ]  # fmt: skip
    _compare(optimizers, values, reference.adaptive, setting)


TORCH = {
    "sgd": (lambda t, p: t.optim.SGD(p, 0.1, weight_decay=0.01),
            lambda: SGD({"defaultLearningRate": (0.1, True), "defaultWeightDecay": (0.01, True)})),
    "momentum": (lambda t, p: t.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
                 lambda: SGD({"defaultLearningRate": (0.1, True), "defaultWeightDecay": (0.01, True),
                              "defaultMomentum": (0.9, True)})),
    "nesterov": (lambda t, p: t.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
                 lambda: SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True),
                              "nesterov": (1, True)})),
    "adam": (lambda t, p: t.optim.Adam(p, 0.1, eps=1e-6, weight_decay=0.01),
             lambda: Adam({"defaultWeightDecay": (0.01, True)}, weight_decay_mode=WeightDecayMode.L2Regularization)),
    "adamw": (lambda t, p: t.optim.AdamW(p, 0.1, eps=1e-6, weight_decay=0.01),
              lambda: Adam({"defaultWeightDecay": (0.01, True)})),
    "rmsprop": (lambda t, p: t.optim.RMSprop(p, 0.01, 0.99, eps=1e-6), lambda: Adaptive({})),
    "rmsprop-centred": (lambda t, p: t.optim.RMSprop(p, 0.01, 0.99, eps=1e-6, momentum=0.5, centered=True),
                        lambda: Adaptive({"defaultMomentum": (0.5, True)}, AdaptiveMode.CenteredRMSProp)),
    "adagrad": (lambda t, p: t.optim.Adagrad(p, 0.01, eps=1e-6), lambda: Adaptive({}, AdaptiveMode.AdaGrad)),
    "adadelta": (lambda t, p: t.optim.Adadelta(p, 0.01, rho=0.99, eps=1e-6),
                 lambda: Adaptive({}, AdaptiveMode.AdaDelta)),
}  # fmt: skip


@pytest.mark.parametrize("name", TORCH)
def test_torch(name):
    torch = pytest.importorskip("torch")
    theirs, ours = TORCH[name]
    w0 = np.random.default_rng(0).normal(size=SHAPE)
    grads = _gradients(reference.Setting())
    parameter = torch.nn.Parameter(torch.tensor(w0))
    optimizer = theirs(torch, [parameter])
    for g in grads:
        parameter.grad = torch.tensor(g[0, 0])
        optimizer.step()
    found, _ = run_rule([ours()] * STEPS, grads, w0.astype(np.float32), Reduction())
    np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("l2", [False, True])
@pytest.mark.parametrize("mode", list(AdamMode))
def test_scaled_state_gives_the_same_weights(mode, l2):
    """With a constant loss scale the scaled form equals the unscaled one; the moments carry the scale."""
    decay = WeightDecayMode.L2Regularization if l2 else WeightDecayMode.Decay
    values = {"lossScaling": (64.0, True), "defaultWeightDecay": (0.01, True), "defaultEps": (1e-3, True)}
    grads = _gradients(reference.Setting()) * 64
    w0 = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    plain, state = run_rule([Adam(values, mode, decay)] * STEPS, grads, w0, Reduction())
    scaled, moments = run_rule([Adam(values, mode, decay, scaled_optimizer_state=True)] * STEPS, grads, w0, Reduction())
    np.testing.assert_allclose(scaled, plain, rtol=1e-5)
    np.testing.assert_allclose(moments["accl1"], state["accl1"] * 64, rtol=1e-5)
