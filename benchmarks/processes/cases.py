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
from popart_jax import popdist, popxl
from popart_jax.popdist.popart import configureSessionOptions
from popart_jax.popxl import ops

OWN = "own "
Arrays = dict[str, np.ndarray]
_HEAD = '<ir_version: 4, opset_import: ["" : 10, "ai.graphcore" : 1]>'
_BATCHES, _FACTOR, _STEPS = 2, 2, 3
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


def _mine(array: np.ndarray, axis: int = 0) -> np.ndarray:
    """The part of this process's replicas."""
    start = popdist.getReplicaIndexOffset()
    return np.ascontiguousarray(array.take(range(start, start + popdist.getNumLocalReplicas()), axis))


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
    rng, anchors, found = np.random.default_rng(1), session.initAnchorArrays(), {}
    for step in range(_STEPS):
        if step == 1:
            session.updateOptimizerFromHost(then)
        x = rng.normal(size=(_BATCHES, _FACTOR, replicas, 2, 6)).astype(dtype)
        session.run(popart.PyStepIO({"x": _mine(x, 2)}, anchors))
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


def remote_buffers() -> Arrays:
    """PopXL: a remote variable of each replica group, one in shards, gradients reduced over replicas, seeds."""
    ir = popxl.Ir(replication="popdist")
    count = ir.replication_factor
    rng = np.random.default_rng(5)
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((4,), popxl.float32), popxl.d2h_stream((4,), popxl.float32)
        seeds = popxl.h2d_stream((2,), popxl.uint32)
        x = ops.dropout(ops.host_load(source), ops.host_load(seeds), 0.25)
        grouping = ir.replica_grouping(1, 2 if count > 1 else 1)
        buffer = popxl.remote_buffer((4,), popxl.float32, entries=2)
        shape = (4,) if grouping.num_groups == 1 else (grouping.num_groups, 4)
        value = rng.normal(size=shape).astype(np.float32)
        grouped = popxl.remote_variable(value, buffer, 1, replica_grouping=grouping)
        weight = ops.remote_load(buffer, 1)
        sum_of_all = ops.collectives.replicated_all_reduce(x * weight)
        ops.scaled_add_(weight, ops.collectives.replicated_all_reduce(x, group=grouping), b=-0.1)
        ops.remote_store(buffer, 1, weight)
        variables = [grouped]
        if count > 1:
            whole = rng.normal(size=(16, 2)).astype(np.float32)
            shards = popxl.replica_sharded_buffer(whole.shape, popxl.float32)
            variables.append(popxl.remote_replica_sharded_variable(whole, shards))
            part = ops.remote_load(shards, 0)
            full = ops.collectives.replicated_all_gather(part)
            ops.scaled_add_(part, part, b=0.25)
            ops.remote_store(shards, 0, part)
            sum_of_all = sum_of_all + ops.sum(full)
        ops.host_store(sink, sum_of_all + weight)
    found: Arrays = {}
    data, keys = rng.normal(size=(_STEPS, count, 4)).astype(np.float32), popxl.create_seeds(7, replicas=count)
    local = popdist.getNumLocalReplicas()
    with popxl.Session(ir, "ipu_hw") as session:
        for step in range(_STEPS):
            fed = {source: _mine(data[step]), seeds: _mine(np.reshape(keys, (count, 2)))}
            sent = session.run({s: x[0] if local == 1 else x for s, x in fed.items()})
            found[f"{OWN}stream, step {step}"] = np.reshape(sent[sink], (local, 4))
        found |= {f"variable {i}": session.get_tensor_data(v) for i, v in enumerate(variables)}
    return found


CASES: dict[str, Callable[[], Arrays]] = {
    "Adam, dropout, changing rate": adam,
    "automatic loss scaling": loss_scaling,
    "replica groups": groups,
    "sharded state": sharded_state,
    "remote buffers": remote_buffers,
}


def main(folder: str) -> None:
    """Run all cases and keep what this process saw."""
    found: Any = {f"{case}: {name}": array for case, run in CASES.items() for name, array in run().items()}
    np.savez(Path(folder) / f"{jax.process_index()}.npz", **found)


if __name__ == "__main__":
    main(sys.argv[1])
