"""Pipelines, accumulation, replicas and kinds of anchors together: shapes, and weights against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popart_jax as popart

from . import nets

torch = pytest.importorskip("torch")

MICRO, WIDTH, CLASSES = 4, 8, 5


def _network(placed: bool) -> tuple[bytes, dict[str, str], dict[str, np.ndarray]]:
    """Two dense layers, the second on its own IPU and pipeline stage if asked for."""
    rng = np.random.default_rng(0)
    values = {"u": rng.normal(size=(WIDTH, WIDTH)), "v": rng.normal(size=(WIDTH, CLASSES))}
    weights = {name: (value * 0.4).astype(np.float32) for name, value in values.items()}
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [MICRO, WIDTH], "x")
    label = builder.addInputTensor("INT32", [MICRO], "label")
    u, v = (builder.addInitializedInputTensor(value, name) for name, value in weights.items())
    first = [builder.aiOnnx.matmul([x, u])]
    first.append(builder.aiOnnx.tanh([first[0]]))
    second = [builder.aiOnnx.matmul([first[1], v])]
    second.append(builder.aiOnnx.softmax([second[0]]))
    second.append(builder.aiGraphcore.nllloss([second[1], label], popart.ReductionType.Mean))
    for place, names in enumerate((first, second) if placed else ()):
        for name in names:
            builder.virtualGraph(name, place)
            builder.pipelineStage(name, place)
    return builder.getModelProto(), {"hidden": first[1], "loss": second[2]}, weights


def _torch_weights(weights: dict[str, np.ndarray], x: np.ndarray, label: np.ndarray, *, mean: bool) -> list[np.ndarray]:
    """Weights after one SGD step with momentum per batch; `x` is [batches, micro-batches, replicas, ...]."""
    tensors = [torch.tensor(value, requires_grad=True) for value in weights.values()]
    optimizer = torch.optim.SGD(tensors, lr=0.1, momentum=0.8, weight_decay=0.01)
    for batch, labels in zip(x, label, strict=True):
        optimizer.zero_grad()
        parts = zip(batch.reshape(-1, MICRO, WIDTH), labels.reshape(-1, MICRO), strict=True)
        losses = [
            torch.nn.functional.cross_entropy(
                torch.tanh(torch.tensor(part) @ tensors[0]) @ tensors[1], torch.tensor(of_part).long()
            )
            for part, of_part in parts
        ]
        total = torch.stack(losses).sum()
        (total / len(losses) if mean else total).backward()
        optimizer.step()
    return [tensor.detach().numpy() for tensor in tensors]


MEAN = {"accumulationAndReplicationReductionType": popart.ReductionType.Mean}
RUNNING = {**MEAN, "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running}
PIPELINED = {"virtualGraphMode": popart.VirtualGraphMode.Manual, "enablePipelining": True}
EXPLICIT = {**PIPELINED, "explicit": True}
STRUCTURES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "plain": (1, 1, {}),
    "accumulated": (3, 1, {}),
    "mean": (3, 1, MEAN),
    "running": (3, 1, RUNNING),
    "replicated mean": (1, 2, MEAN),
    "both running": (3, 2, RUNNING),
    "pipelined": (3, 1, PIPELINED),
    "pipelined, replicated, mean": (4, 2, {**PIPELINED, **MEAN}),
    "pipelined, recomputed": (3, 1, {**PIPELINED, "autoRecomputation": popart.RecomputationType.Pipeline}),
    "explicit pipeline": (3, 1, EXPLICIT),
    "host copies": (2, 1, {"useHostCopyOps": True, "enableExplicitMainLoops": True}),
}


UNPLACED = [name for name, (_, _, extra) in STRUCTURES.items() if "enablePipelining" not in extra]


@pytest.mark.parametrize(("name", "separate"), [*((n, False) for n in STRUCTURES), *((n, True) for n in UNPLACED)])
def test_weights_against_torch(name, separate):
    factor, replicas, extra = STRUCTURES[name]
    proto, names, weights = _network("enablePipelining" in extra)
    settings = {**extra, **nets.accumulated(factor)} if factor > 1 else dict(extra)
    settings |= nets.replicated(replicas) if replicas > 1 else {}
    explicit = settings.pop("explicit", False)
    options = nets.make_options(**settings)
    if explicit:
        options.enableExplicitIR(True)
    kinds = popart.SGDAccumulatorAndMomentum
    optimizer = popart.SGD(
        {"defaultLearningRate": (0.1, False), "defaultMomentum": (0.8, True), "defaultWeightDecay": (0.01, True)},
        accumulatorAndMomentum=kinds.Separate if separate else kinds.Combined,
    )
    loops = "enableExplicitMainLoops" in extra or explicit  # with several batches per step these keep no Final
    anchors = {names["loss"]: "All", names["hidden"]: "All" if loops else "Final", "Gradient___u": "Sum"}
    ipus = replicas * (2 if "enablePipelining" in extra else 1)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
    session = popart.TrainingSession(
        proto, nets.flow(2, anchors), names["loss"], optimizer, device, userOptions=options
    )
    session.prepareDevice()
    session.weightsFromHost()
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, factor, replicas, MICRO, WIDTH)).astype(np.float32)
    label = rng.integers(0, CLASSES, (2, factor, replicas, MICRO)).astype(np.int32)
    found = nets.run(session, x=x, label=label)
    lead = tuple(d for d in (2, factor, replicas) if d > 1)
    of_replicas = (replicas,) if replicas > 1 else ()
    assert found[names["loss"]].shape == lead
    assert found[names["hidden"]].shape == (*(lead if loops else of_replicas), MICRO, WIDTH)
    assert found["Gradient___u"].shape == (*of_replicas, WIDTH, WIDTH)
    got = nets.weights_of(session, **weights)
    expected = _torch_weights(weights, x, label, mean=bool(extra.keys() & MEAN.keys()))
    for weight, want in zip(weights, expected, strict=True):
        np.testing.assert_allclose(got[weight], want, rtol=2e-5, atol=2e-6, err_msg=weight)


@pytest.mark.parametrize("mode", ["OnePerGroup", "AllReplicas", "AllReduceReplicas"])
@pytest.mark.parametrize(
    ("group", "count"),
    [
        (popart.CommGroup(popart.CommGroupType.Ungrouped, 0), 4),
        (popart.CommGroup(popart.CommGroupType.Consecutive, 2), 2),
        (popart.CommGroup(popart.CommGroupType.Orthogonal, 2), 2),
    ],
    ids=["ungrouped", "consecutive", "orthogonal"],
)
def test_groups_of_replicas(group, count, mode, tmp_path):
    """Each group sums the gradients of its members; what the host reads and writes has a row per group or replica."""
    settings = popart.VariableSettings(group, getattr(popart.VariableRetrievalMode, mode))
    start = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    w = builder.addInitializedInputTensor(start, settings, "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    session = nets.train(builder.getModelProto(), {loss: "All"}, nets.sgd(0.5), loss=loss, **nets.replicated(4))
    data = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    nets.run(session, x=data)
    members = settings.groups(4)
    per_group = np.stack([start[g] - 0.5 * data[list(rows)].sum(0) for g, rows in enumerate(members)])
    per_replica = np.empty((4, 3), np.float32)
    for g, rows in enumerate(members):
        per_replica[list(rows)] = per_group[g]
    want = per_replica if mode == "AllReplicas" else per_group
    np.testing.assert_allclose(nets.weights_of(session, w=want)["w"], want, rtol=1e-5)
    path = str(tmp_path / "m.onnx")
    session.modelToHost(path)
    session.resetHostWeights(path)
    session.weightsFromHost()
    np.testing.assert_allclose(nets.weights_of(session, w=want)["w"], want, rtol=1e-5)
    session.writeWeights(popart.PyWeightsIO({"w": start}))
    session.weightsFromHost()
    nets.run(session, x=data)
    np.testing.assert_allclose(nets.weights_of(session, w=want)["w"], want, rtol=1e-5)
