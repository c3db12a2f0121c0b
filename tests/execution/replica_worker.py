"""One replicated training run; started by test_replication in processes with different devices.

Usage: ``replica_worker.py OUT.npz DEVICES [PROCESSES INDEX PORT]``.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
import onnx
from onnx import helper

REPLICAS, BATCHES, FACTOR = 4, 2, 2
NET = """g (float[2,3,4,4] x) => (float loss) {
    c = Conv<pads = [1, 1, 1, 1]>(x, k)
    n, m1, v1, m2, v2 = BatchNormalization(c, scale, bias, mean, var)
    r = Relu(n)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    h = MatMul(f, w)
    o = Mul(h, own)
    d = Dropout<ratio = 0.25>(o)
    loss = ai.graphcore.L1<lambda = 0.5, reduction = "Mean">(d)
}"""


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "k": rng.normal(size=(5, 3, 3, 3)).astype(np.float32),
        "scale": np.ones(5, np.float32),
        "bias": np.zeros(5, np.float32),
        "mean": np.zeros(5, np.float32),
        "var": np.ones(5, np.float32),
        "w": rng.normal(size=(5, 6)).astype(np.float32),
        "own": rng.normal(size=(2, 6)).astype(np.float32),
    }


def proto(text: bytes) -> bytes:
    """The model with two groups of replicas, each over both processes, that have their own value of `own`."""
    model = onnx.load_model_from_string(text)
    props = {"__comm_group_type/own": "2", "__comm_group_size/own": "2", "__variable_settings/own": "0"}
    helper.set_model_props(model, props)
    return model.SerializeToString()


def run(out: str, processes: int = 1, index: int = 0) -> None:
    """Train on the devices that there are, and write weights and anchors."""
    import popart_jax as popart
    from tests.session import nets

    local = REPLICAS // processes
    start = index * local
    options = nets.make_options(**nets.replicated(local), **nets.accumulated(FACTOR))
    sharded = popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
    for kind in ("weight", "optimizerState", "accumulator"):
        setattr(options, f"{kind}TensorLocationSettings", popart.TensorLocationSettings(sharded, 0, 0))
    if processes > 1:
        options.enableDistributedReplicatedGraphs = True
        options.globalReplicationFactor = REPLICAS
        options.globalReplicaOffset = start
    clips = [popart.ClipNormSettings.clipAllWeights(2.0)]
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}, clips)
    anchors = {"loss": "All", "h": "Final", "Gradient___h": "Sum"}
    session = popart.TrainingSession(
        proto(nets.model(NET, **weights())),
        nets.flow(BATCHES, anchors),
        "loss",
        optimizer,
        nets.device(),
        userOptions=options,
    )
    session.prepareDevice()
    session.setRandomSeed(11)
    session.weightsFromHost()
    found = session.initAnchorArrays()
    rng = np.random.default_rng(1)
    for _ in range(2):
        x = rng.normal(size=(BATCHES, FACTOR, REPLICAS, 2, 3, 4, 4)).astype(np.float32)
        mine = np.ascontiguousarray(x[:, :, start : start + local])
        session.run(popart.PyStepIO({"x": mine}, found))
    got = {n: np.empty_like(w) for n, w in weights().items()}
    got |= {f"Accl___{n}": np.empty_like(got[n]) for n in ("w", "own")}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(got))
    mesh = session._engine.programs[""].executable.mesh
    np.savez(out, devices=0 if mesh is None else mesh.size, **got, **{f"anchor/{n}": a for n, a in found.items()})


def main(out: str, devices: int, processes: int = 1, index: int = 0, port: int = 0) -> None:
    jax.config.update("jax_num_cpu_devices", devices)
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, index)
    run(out, processes, index)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
