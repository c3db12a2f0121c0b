"""Optimizers in every structure of a step, drawn at random but the same each time, against NumPy in float64.

A draw chooses optimizer and hyperparameters (which change between the steps), batches, accumulation, replicas and how
their gradients combine, pipelining, recomputation, sharding, and loops and recomputation standing in the IR.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import popart_jax as popart

from ..optimizers import reference
from . import nets

STEPS, ROWS = 2, 2
KEYS = {
    "lr": "defaultLearningRate", "wd": "defaultWeightDecay", "ls": "lossScaling", "mm": "defaultMomentum",
    "dm": "defaultDampening", "vs": "defaultVelocityScaling", "nesterov": "nesterov", "b1": "defaultBeta1",
    "b2": "defaultBeta2", "eps": "defaultEps", "mwn": "defaultMaxWeightNorm", "a": "defaultAlpha",
}  # fmt: skip
FIXED = {"nesterov"}
W0 = {n: np.random.default_rng(i).normal(size=s) for i, (n, s) in enumerate({"w": (3, 4), "v": (4, 2)}.items())}


@dataclass(frozen=True)
class Draw:
    """One combination: `steps` holds the hyperparameters of each step under the reference's names."""

    kind: str
    mode: str
    steps: list[dict[str, Any]]
    batches: int
    setting: reference.Setting
    pipelined: bool
    options: dict[str, Any]


def _draw(seed: int) -> Draw:
    r = random.Random(seed)
    kind = ("sgd", "sgd_separate", "sgd_combined", "adam", "adaptive")[seed % 5]
    mode = {"adam": r.choice(["Adam", "AdamNoBias", "AdaMax", "Lamb", "LambNoBias"]),
            "adaptive": r.choice(["AdaGrad", "RMSProp", "CenteredRMSProp", "AdaDelta"])}.get(kind, "")  # fmt: skip
    pipelined = r.random() < 0.4
    accumulate = pipelined or r.random() < 0.5
    micro = r.choice([3, 4]) if pipelined else r.choice([1, 2, 3]) if accumulate else 1
    setting = reference.Setting(accumulate, micro, r.choice([1, 2, 4]), r.random() < 0.5, r.random() < 0.5)
    nesterov = kind.startswith("sgd_") and r.random() < 0.5
    fixed = {"l2": r.random() < 0.5, "tf": mode.endswith("RMSProp") and r.random() < 0.5, "mode": mode}
    steps = [{**fixed, **_hyper(r, kind, nesterov)} for _ in range(STEPS)]
    return Draw(kind, mode, steps, r.choice([1, 2]), setting, pipelined, _options(r, setting, pipelined))


def _hyper(r: random.Random, kind: str, nesterov: bool) -> dict[str, Any]:
    common = {"lr": r.uniform(0.005, 0.02), "wd": r.choice([0, 0.1]), "ls": r.choice([1, 4])}
    if kind == "adam":
        return {**common, "b1": 0.8, "b2": r.uniform(0.9, 0.95), "eps": 1e-3, "mwn": r.choice([0.0, 1.0, 10.0])}
    if kind == "adaptive":
        return {**common, "a": r.uniform(0.8, 0.9), "mm": r.uniform(0.2, 0.6), "eps": 1e-2}
    damped = 0 if nesterov else 0.25
    return {**common, "mm": 0 if kind == "sgd" else 0.5, "dm": damped, "vs": 2, "nesterov": float(nesterov)}


def _options(r: random.Random, setting: reference.Setting, pipelined: bool) -> dict[str, Any]:
    mean = popart.ReductionType.Mean if setting.mean else popart.ReductionType.Sum
    when = popart.MeanReductionStrategy.Running if setting.running else popart.MeanReductionStrategy.Post
    found: dict[str, Any] = {
        "accumulationAndReplicationReductionType": mean, "meanAccumulationAndReplicationReductionStrategy": when,
    }  # fmt: skip
    found |= nets.replicated(setting.replicas) if setting.replicas > 1 else {}
    found |= nets.accumulated(setting.micro) if setting.accumulate else {}
    kinds = ["NoRecompute", "Standard", "NormOnly", "RecomputeAll", *(["Pipeline"] if pipelined else [])]
    found["autoRecomputation"] = popart.RecomputationType[r.choice(kinds)]
    if pipelined:
        found |= {"enablePipelining": True, "virtualGraphMode": popart.VirtualGraphMode.Manual}
    if r.random() < 0.3:
        found |= dict.fromkeys(("useHostCopyOps", "enableExplicitMainLoops", "explicitRecomputation"), True)
    if r.random() < 0.5:
        place = popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
        places = popart.TensorLocationSettings(place, 0, 0)
        found |= {"weightTensorLocationSettings": places, "optimizerStateTensorLocationSettings": places}
    return found


def _optimizer(draw: Draw, step: int) -> popart.Optimizer:
    h = draw.steps[step]
    values = {KEYS[n]: (x, n in FIXED or (n == "mm" and draw.kind == "sgd")) for n, x in h.items() if n in KEYS}
    decay = popart.WeightDecayMode.L2Regularization if h["l2"] else popart.WeightDecayMode.Decay
    if draw.kind == "adam":
        return popart.Adam(values, popart.AdamMode[draw.mode], decay)
    if draw.kind == "adaptive":
        return popart.Adaptive(values, popart.AdaptiveMode[draw.mode], decay, rmsprop_tf_variant=h["tf"])
    separate = draw.kind == "sgd_separate"
    return popart.SGD(
        values, accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum["Separate" if separate else "Combined"]
    )


def _session(draw: Draw) -> tuple[popart.TrainingSession, str]:
    builder = popart.Builder()
    onnx = builder.aiOnnx
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [ROWS, 3]), "x")
    w, v = (builder.addInitializedInputTensor(a.astype(np.float32), n) for n, a in W0.items())

    def stage(number: int) -> ExitStack:
        stack = ExitStack()
        if draw.pipelined:
            stack.enter_context(builder.virtualGraph(number))
            stack.enter_context(builder.pipelineStage(number))
        return stack

    with stage(0):
        t = onnx.tanh([onnx.matmul([x, w])])
    with stage(1):
        y = onnx.matmul([t, v])
        loss = builder.aiGraphcore.identityloss([onnx.mul([y, y])], reduction=popart.ReductionType.Sum)
    ipus = draw.setting.replicas * (2 if draw.pipelined else 1)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
    flow = nets.flow(draw.batches, {loss: "All"})
    options = nets.make_options(**draw.options)
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, _optimizer(draw, 0), device, userOptions=options
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session, loss


def _gradients(w: np.ndarray, v: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    t = np.tanh(x @ w)
    y = t @ v
    back = 2 * y @ v.T * (1 - t**2)
    return float((y**2).sum()), x.T @ back, t.T @ (2 * y)


def _update(draw: Draw, trained: reference.Trained, gradients: np.ndarray, h: dict[str, Any]) -> None:
    getattr(reference, draw.kind)(trained, gradients * h["ls"], h, draw.setting)


@pytest.mark.parametrize("seed", range(10))
def test_weights_and_losses(seed):
    draw = _draw(seed)
    session, loss = _session(draw)
    trained = {n: reference.Trained(a.astype(np.float32).astype(np.float64)) for n, a in W0.items()}
    lead = (draw.batches, draw.setting.micro, draw.setting.replicas)
    rng = np.random.default_rng(seed)
    for step, h in enumerate(draw.steps):
        if step:
            session.updateOptimizerFromHost(_optimizer(draw, step))
        x = rng.normal(size=(*lead, ROWS, 3)).astype(np.float32)
        losses = np.empty(lead)
        for b in range(draw.batches):
            parts = {n: np.empty((*lead[1:], *a.shape)) for n, a in W0.items()}
            for place in np.ndindex(*lead[1:]):
                weights = [trained[n].w for n in W0]
                losses[(b, *place)], parts["w"][place], parts["v"][place] = _gradients(*weights, x[(b, *place)])
            for n in W0:
                _update(draw, trained[n], parts[n], h)
        found = nets.run(session, x=x)
        np.testing.assert_allclose(found[loss].reshape(lead), losses, rtol=2e-4, err_msg=str(draw))
    got = nets.weights_of(session, **{n: a.astype(np.float32) for n, a in W0.items()})
    for n, t in trained.items():
        np.testing.assert_allclose(got[n], t.w, rtol=2e-4, atol=2e-5, err_msg=str(draw))
