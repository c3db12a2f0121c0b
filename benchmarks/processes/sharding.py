"""Sessions whose weights are split over devices, beside one device: ``python -m benchmarks.processes.sharding``.

Losses, weights, and bytes of one device: what rests on it, and XLA's peak while a step runs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import jax
import numpy as np
import onnx
from jax.sharding import PartitionSpec
from onnx import numpy_helper, parser

import popart_jax as popart
from popart_jax.session.preparing.shards import DEVICES, SHARD, rules_text

from .command import Figures, command

_DEVICES, _LAYERS, _STEPS, _ROWS, _VOCABULARY = 4, 2, 3, 4, 64
_NAMES = rules_text([("up_w", PartitionSpec(None, "model")), ("down_w", PartitionSpec("model"))])
CASES: dict[str, tuple[str | None, int, int]] = {  # rules, replicas, devices of each
    "one device": (None, 1, 1),
    "tensor parallel on 4": ("tensor_parallel", 1, 4),
    "FSDP on 4": ("fsdp", 1, 4),
    "rules by name on 4": (_NAMES, 1, 4),
    "two replicas on one device": (None, 2, 1),
    "tensor parallel, 2 replicas of 2": ("tensor_parallel", 2, 2),
    "FSDP, 2 replicas of 2": ("fsdp", 2, 2),
}


def model(width: int) -> onnx.ModelProto:
    """Feed-forward blocks with residuals between an embedding and a head."""
    rng, nodes = np.random.default_rng(0), list[str]()
    values = {"table": rng.normal(0, 1, (_VOCABULARY, width)), "head": rng.normal(0, 0.1, (width, _VOCABULARY))}
    nodes.append("h0 = Gather(table, x)")
    for i in range(_LAYERS):
        values[f"up_w{i}"] = rng.normal(0, width**-0.5, (width, 4 * width))
        values[f"up_b{i}"] = np.zeros(4 * width)
        values[f"down_w{i}"] = rng.normal(0, (4 * width) ** -0.5, (4 * width, width))
        nodes += [f"m{i} = MatMul(h{i}, up_w{i})", f"a{i} = Add(m{i}, up_b{i})", f"t{i} = Tanh(a{i})"]
        nodes += [
            f"d{i} = Dropout<ratio = 0.1>(t{i})",
            f"o{i} = MatMul(d{i}, down_w{i})",
            f"h{i + 1} = Add(h{i}, o{i})",
        ]
    nodes += [f"y = MatMul(h{_LAYERS}, head)", "p = Softmax<axis = 2>(y)"]
    nodes.append('loss = ai.graphcore.Nll<reduction = "Mean">(p, x)')
    text = f'<ir_version: 4, opset_import: ["": 10, "ai.graphcore": 1]> g (int32[{_ROWS},16] x) => (float loss) {{'
    proto = parser.parse_model(f"{text} {' '.join(nodes)} }}")
    tensors = (numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items())
    proto.graph.initializer.extend(tensors)
    return proto


def run(width: int, rules: str | None, replicas: int, devices: int) -> dict[str, Any]:
    """Three steps with momentum: losses of each replica, weights, and bytes of a device."""
    options = popart.SessionOptions()
    local, first = replicas // jax.process_count(), jax.process_index() * replicas // jax.process_count()
    options.enableReplicatedGraphs, options.replicatedGraphCount = local > 1, local
    if local < replicas:
        options.enableDistributedReplicatedGraphs = True
        options.globalReplicationFactor, options.globalReplicaOffset = replicas, first
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    if rules is not None:
        options.engineOptions[SHARD] = rules
        options.engineOptions[DEVICES] = str(devices)
    proto = model(width)
    flow = popart.DataFlow(1, {"loss": popart.AnchorReturnType("All")})
    rule = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
    ipu = popart.DeviceManager().createIpuModelDevice({})
    session = popart.TrainingSession(proto.SerializeToString(), flow, "loss", rule, ipu, userOptions=options)
    session.prepareDevice()
    session.setRandomSeed(3)
    session.weightsFromHost()
    rng, losses = np.random.default_rng(1), []
    anchors = session.initAnchorArrays()
    for _ in range(_STEPS):
        x = rng.integers(0, _VOCABULARY, (2, replicas, _ROWS, 16)).astype(np.int32)
        mine = np.ascontiguousarray(x[:, first : first + local])
        session.run(popart.PyStepIO({"x": mine}, anchors))
        losses.append(anchors["loss"].reshape(-1).tolist())
    weights = {t.name: np.empty(tuple(t.dims), np.float32) for t in proto.graph.initializer}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    held = session._held().arrays
    device = cast("Any", jax.local_devices()[0])
    resting = sum(s.data.nbytes for x in held.values() for s in x.addressable_shards if s.device == device)
    assert session._engine is not None
    facts = session._engine.executables[""].call.memory_analysis()
    whole = {n: held[n].addressable_shards[0].data.size / held[n].size for n in weights}
    return {
        "losses": losses,
        "weights": weights,
        "resting": resting,
        "peak": facts.temp_size_in_bytes + facts.argument_size_in_bytes + facts.output_size_in_bytes
        - facts.alias_size_in_bytes,
        "held": whole,
    }  # fmt: skip


def measure(width: int, cases: Collection[str]) -> dict[str, dict[str, Any]]:
    """Some cases; weights give way to their largest distance from those of as many replicas on one device."""
    names = {1: "one device", 2: "two replicas on one device"}
    wanted = [name for name in CASES if name in cases or name in names.values()]
    found = {name: run(width, *CASES[name]) for name in wanted}
    bases = {replicas: found[name] for replicas, name in names.items()}
    weights = {replicas: base["weights"] for replicas, base in bases.items()}
    for name, one in found.items():
        base, mine = weights[CASES[name][1]], one.pop("weights")
        one["gap"] = max(float(np.max(np.abs(mine[n] - base[n]))) for n in base)
        one["loss gap"] = float(np.max(np.abs(np.subtract(one["losses"], bases[CASES[name][1]]["losses"]))))
    return found


def main(argv: list[str] | None = None) -> int:
    """Print the table, or the figures as JSON."""
    columns = ("layout", "largest gap of losses", "of weights", "resting [MB]", "peak of a step [MB]")
    return command(argv, __doc__, _DEVICES, CASES, measure, columns, _row)


def _row(one: Figures) -> tuple[str, ...]:
    sizes = (f"{one[key] / 1e6:.2f}" for key in ("resting", "peak"))
    return f"{one['loss gap']:.1e}", f"{one['gap']:.1e}", *sizes


if __name__ == "__main__":
    raise SystemExit(main())
