"""Distances of numbers in stages on devices from those in order, as JSON: inference, forward pass, resuming."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np

import popart_jax as popart
from benchmarks.processes import stages
from popart_jax import Checkpoints
from popart_jax.session.devices.staging import STAGES

from . import nets

WIDTH, FORWARD = 8, "implicitPipeliningFwdOnly"


def options(where: str, **more) -> popart.SessionOptions:
    placed = {"virtualGraphMode": popart.VirtualGraphMode.Manual, "enablePipelining": True}
    return nets.make_options(**placed, engineOptions={STAGES: where}, **more)


def device() -> popart.DeviceInfo:
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": 3})


def data(*loops: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(*loops, 4, WIDTH)).astype(np.float32)


def infer(where: str) -> list[np.ndarray]:
    flow = nets.flow(6, {"c2": "All", "t0": "Sum", "mean": "Final"})
    proto = stages.model(WIDTH).SerializeToString()
    session = popart.InferenceSession(proto, flow, device(), userOptions=options(where))
    session.prepareDevice()
    session.weightsFromHost()
    return list(nets.run(session, x=data(6)).values())


def train(where: str, folder: Path, *, resume: bool) -> list[np.ndarray]:
    """Losses of four steps, the second of which leaves a checkpoint, and the forward pass behind them."""
    more = {"createImplicitPipeliningFwdOnlyProgram": True, **nets.accumulated(6)}
    flow, rule = nets.flow(2, {"loss": "All", "c2": "Final"}), popart.Adam({"defaultLearningRate": (0.01, False)})
    proto = stages.model(WIDTH).SerializeToString()
    session = popart.TrainingSession(proto, flow, "loss", rule, device(), userOptions=options(where, **more))
    session.prepareDevice()
    session.setRandomSeed(2)
    session.weightsFromHost()
    saved, anchors, found = Checkpoints(folder, resume=resume), session.initAnchorArrays(), []
    for step in range(saved.restore(session), 4):
        session.run(popart.PyStepIO({"x": data(2, 6) * (step + 1)}, anchors))
        found.append(anchors["loss"].copy())
        if step == 1:
            saved.save(session, 2)
    session.run(FORWARD, popart.PyStepIO({"x": data(2, 6)}, anchors))
    return [*found, anchors["c2"].copy()]


def gap(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return max(float(np.max(np.abs(a - b))) for a, b in zip(one, other, strict=True))


def main(folder: Path) -> None:
    jax.config.update("jax_num_cpu_devices", 3)
    whole, parts = (train(w, folder / w, resume=False) for w in ("in order", "devices"))
    found = {
        "inference": gap(infer("in order"), infer("devices")),
        "training and forward pass": gap(whole, parts),
        "resumed": gap(parts[2:], train("devices", folder / "devices", resume=True)),
        "resumed the other way": gap(whole[2:], train("devices", folder / "in order", resume=True)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
