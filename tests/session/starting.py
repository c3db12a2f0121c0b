"""Training sessions that start from files: a classifier, its optimizers, and what a program sees of its session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import popart_jax as popart

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(2, 6, 5)).astype(np.float32), RNG.integers(0, 4, (2, 6)).astype(np.int32)
W1, W2 = RNG.normal(size=(5, 7)).astype(np.float32), RNG.normal(size=(7, 4)).astype(np.float32)
RATE = "defaultLearningRate"


def model(*, dropout: bool = False, norm: bool = False) -> tuple[bytes, str]:
    """A classifier, and the name of its loss."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", X.shape[1:]), "x")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", LABELS.shape[1:]), "labels")
    weights = [builder.addInitializedInputTensor(w, n) for n, w in (("w1", W1), ("w2", W2))]
    h = builder.aiOnnx.matmul([x, weights[0]])
    if norm:
        first = [builder.addInitializedInputTensor(np.full(7, v, np.float32)) for v in (1, 0, 0, 1)]
        h = builder.aiOnnx.batchnormalization([h, *first], 5)[0]
    h = builder.aiOnnx.relu([h])
    if dropout:
        h = builder.aiOnnx.dropout([h], 1, 0.5)[0]
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([builder.aiOnnx.matmul([h, weights[1]])]), labels])
    return builder.getModelProto(), loss


def accumulating() -> popart.SessionOptions:
    """Options that act in the program alone: two micro-batches for each update, whose mean it takes."""
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    options.enableOutlining = False
    return options


def session(given: tuple[Any, str], optimizer: popart.Optimizer, **more: Any) -> Any:
    proto, loss = given
    batches = 1 if "userOptions" in more else 2
    flow = popart.DataFlow(batches, {loss: popart.AnchorReturnType("All"), "w2": popart.AnchorReturnType("Final")})
    return popart.TrainingSession(proto, flow, loss, optimizer, popart.DeviceManager().createCpuDevice(), **more)


def prepared(given: tuple[Any, str], optimizer: popart.Optimizer, **more: Any) -> tuple[Any, popart.PyStepIO]:
    made = session(given, optimizer, **more)
    made.prepareDevice()
    made.weightsFromHost()
    return made, popart.PyStepIO({"x": X.copy(), "labels": LABELS.copy()}, made.initAnchorArrays())


def steps(made: Any, stepio: popart.PyStepIO, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        made.run(stepio)
        found += [a.tobytes() for a in stepio.outputs.values()]
    return found


def read(made: Any, *names: str) -> list[bytes]:
    made.weightsToHost()
    into = {n: np.empty({"w1": W1, "w2": W2}[n.removeprefix("Accl1___")].shape, np.float32) for n in names}
    made.readWeights(popart.PyWeightsIO(into))
    return [a.tobytes() for a in into.values()]


def stored(file: Path) -> dict[str, bytes]:
    return {t.name: t.SerializeToString() for t in onnx.load(file).graph.initializer}


def sgd(**values: Any) -> Callable[[float], popart.Optimizer]:
    more = values.pop("more", {})
    return lambda rate: popart.SGD({RATE: (rate, False), **values}, **more)


SEPARATE = {"accumulatorAndMomentum": popart.SGDAccumulatorAndMomentum.Separate}


def specific(rate: float) -> popart.Optimizer:
    made = popart.SGD({RATE: (rate, False), "defaultMomentum": (0.9, True)})
    made.insertSpecific("w1", {"learningRate": (rate / 2, False), "momentum": (0.5, True)})
    return made


def adam(mode: str = "Adam", **values: Any) -> Callable[[float], popart.Optimizer]:
    return lambda rate: popart.Adam({RATE: (rate, False), **values}, mode=getattr(popart.AdamMode, mode))


def adaptive(mode: str, **values: Any) -> Callable[[float], popart.Optimizer]:
    return lambda rate: popart.Adaptive({RATE: (rate, False), **values}, mode=getattr(popart.AdaptiveMode, mode))


OPTIMIZERS: dict[str, Callable[[float], popart.Optimizer]] = {
    "plain": sgd(),
    "constant": lambda _: popart.ConstSGD(0.1, 0.01),
    "momentum": sgd(defaultMomentum=(0.9, True), defaultWeightDecay=(0.1, False)),
    "two tensors": sgd(defaultMomentum=(0.9, False), defaultDampening=(0.1, False), more=SEPARATE),
    "Nesterov": sgd(defaultMomentum=(0.9, True), nesterov=(1, True)),
    "loss scaling": sgd(lossScaling=(8, False)),
    "clipped": sgd(more={"clip_norm_settings": [popart.ClipNormSettings.clipAllWeights(0.5)]}),
    "half a velocity": sgd(defaultMomentum=(0.9, True), more={"accl1Type": popart.DataType.FLOAT16}),
    "specific": specific,
    "Adam": adam(defaultWeightDecay=(0.01, True)),
    "Adam without bias": adam("AdamNoBias"),
    "Lamb": adam("Lamb", lossScaling=(4, False)),
    "AdaGrad": adaptive("AdaGrad"),
    "RMSProp": adaptive("CenteredRMSProp", defaultMomentum=(0.5, True)),
}


def whole(given: tuple[Any, str], optimizer: Callable[[float], popart.Optimizer], file: Path) -> list[Any]:
    """All that a program can see of a training session."""
    made, stepio = prepared(given, optimizer(0.1))
    seen: list[Any] = steps(made, stepio, 3)
    made.updateOptimizerFromHost(optimizer(0.03))
    seen += steps(made, stepio, 2) + read(made, "w1", "w2")
    made.modelToHost(str(file))  # the session is made in full here
    seen += [stored(file), *steps(made, stepio, 2), *read(made, "w1", "w2")]
    return seen
