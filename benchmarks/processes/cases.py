"""Programs that `agreement` runs in many layouts: ``python -m popart_jax launch -m benchmarks.processes.cases OUT``.

Each case returns arrays by name. Those whose names begin with "own" have this process's replicas in front; all others
are the same in every process.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
from onnx import numpy_helper, parser

import popart_jax as popart
from popart_jax import popdist
from popart_jax.popdist.popart import configureSessionOptions

from . import popxl_cases
from .parts import OWN, STEPS, Arrays, mine

_HEAD = '<ir_version: 4, opset_import: ["" : 10, "ai.graphcore" : 1]>'
_BATCHES, _FACTOR = 2, 2
_SLOTS = {"loss": _BATCHES * _FACTOR, "y": 1, "Gradient___y": 1}  # results that a step leaves of each anchor
_KINDS = {"loss": "All", "y": "Final", "Gradient___y": "Sum"}
_NET = """g (TYPE[2,6] x) => (TYPE loss) {
    h = MatMul(x, w1)
    b = Add(h, b1)
    r = Tanh(b)
    d = Dropout<ratio = 0.25>(r)
    y = MatMul(d, w2)
    loss = ai.graphcore.L1<lambda = 0.5, reduction = "Mean">(y)
}"""


def _weights(dtype: Any) -> Arrays:
    rng = np.random.default_rng(3)
    shapes = {"w1": (6, 8), "b1": (8,), "w2": (8, 4)}
    return {name: rng.normal(0, 0.5, shape).astype(dtype) for name, shape in shapes.items()}


def _train(
    first: popart.Optimizer,
    then: popart.Optimizer,
    dtype: Any = np.float32,
    rows: Mapping[str, tuple[int, int]] | None = None,
    **settings: Any,
) -> Arrays:
    """Three steps, with other hyperparameters from the second on: anchors, seed, weights and the saved model.

    `rows` has size and stride of the groups of replicas with a value of their own, by weight.
    """
    replicas, local = popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()
    weights, rows = _weights(dtype), rows or {}
    text = _NET.replace("TYPE", "float" if dtype is np.float32 else "float16")
    proto = parser.parse_model(f"{_HEAD} {text}")
    for name in rows:
        groups = max(1, replicas // rows[name][0])
        weights[name] = np.stack([weights[name] * (1 + g / 8) for g in range(groups)]).astype(dtype)
        props = {f"__comm_group_type/{name}": "1", f"__comm_group_size/{name}": str(rows[name][0])}
        onnx.helper.set_model_props(proto, props | {f"__variable_settings/{name}": "0"})
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    options = popart.SessionOptions()
    configureSessionOptions(options)
    options.enableGradientAccumulation, options.accumulationFactor = True, _FACTOR
    for name, value in settings.items():
        setattr(options, name, value)
    flow = popart.DataFlow(_BATCHES, {n: popart.AnchorReturnType(kind) for n, kind in _KINDS.items()})
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.TrainingSession(proto.SerializeToString(), flow, "loss", first, device, userOptions=options)
    session.prepareDevice()
    session.setRandomSeed(11)
    session.weightsFromHost()
    rng, anchors = np.random.default_rng(1), session.initAnchorArrays()
    found: dict[str, np.ndarray] = {}
    for step in range(STEPS):
        if step == 1:
            session.updateOptimizerFromHost(then)
        x = rng.normal(size=(_BATCHES, _FACTOR, replicas, 2, 6)).astype(dtype)
        session.run(popart.PyStepIO({"x": mine(x, 2)}, anchors))
        for name, array in anchors.items():
            shown = array.reshape(_SLOTS[name], local, -1).swapaxes(0, 1)
            found[f"{OWN}anchor {name}, step {step}"] = shown.copy()
    found["seed"] = np.asarray(session.getRandomSeed(), np.uint64)
    session.weightsToHost()
    arrays = {name: np.empty_like(value) for name, value in weights.items()}
    session.readWeights(popart.PyWeightsIO(arrays))
    found |= {f"weightsToHost {name}": value for name, value in arrays.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        session.modelToHost(path)
        saved = onnx.load(path).graph.initializer
    return found | {f"modelToHost {t.name}": numpy_helper.to_array(t) for t in saved}


def _adam(rate: float, **more: Any) -> popart.Optimizer:
    return popart.Adam({"defaultLearningRate": (rate, False), **more})


def adam() -> Arrays:
    """Dropout, anchors, seeds, optimizer state, hyperparameters that change."""
    return _train(_adam(0.02), _adam(0.005))


def loss_scaling() -> Arrays:
    """Half precision with automatic loss scaling."""
    scaling = popart.AutomaticLossScalingSettings()
    scaling.enabled = True
    first, then = (
        popart.SGD({"defaultLearningRate": (rate, False), "lossScaling": (2.0**12, False)}) for rate in (0.1, 0.05)
    )
    return _train(first, then, np.float16, automaticLossScalingSettings=scaling)


def groups() -> Arrays:
    """Pairs of neighbouring replicas have a value of one weight each."""
    rows = {"w2": (2, 1)} if popdist.getNumTotalReplicas() > 1 else {}
    return _train(_adam(0.02), _adam(0.005), rows=rows)


def sharded_state() -> Arrays:
    """Replicated tensor sharding of weights and optimizer state, mean gradients, one norm for all weights."""
    sharded = popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
    where = popart.TensorLocationSettings(sharded, 0, 0)
    kinds = ("weight", "optimizerState", "accumulator")
    clips = [popart.ClipNormSettings.clipAllWeights(0.5)]
    first, then = (
        popart.SGD({"defaultLearningRate": (rate, False), "defaultMomentum": (0.9, True)}, clips)
        for rate in (0.1, 0.05)
    )
    settings: dict[str, Any] = {f"{kind}TensorLocationSettings": where for kind in kinds}
    return _train(first, then, accumulationAndReplicationReductionType=popart.ReductionType.Mean, **settings)


CASES: dict[str, Callable[[], Arrays]] = {
    "Adam, dropout, changing rate": adam,
    "automatic loss scaling": loss_scaling,
    "replica groups": groups,
    "sharded state": sharded_state,
    **popxl_cases.CASES,
}


def main(folder: str) -> None:
    """Run all cases and keep what this process saw."""
    found: Any = {f"{case}: {name}": array for case, run in CASES.items() for name, array in run().items()}
    np.savez(Path(folder) / f"{jax.process_index()}.npz", **found)


if __name__ == "__main__":
    main(sys.argv[1])
