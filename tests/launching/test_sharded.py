"""Weights split over devices in two processes: the numbers of one; each process writes its part of checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

from .job import finish, script, start

pytestmark = pytest.mark.processes

PROGRAM = """
import pathlib, sys
import jax, numpy as np, popart, popdist.popart
from benchmarks.processes import sharding
from popart_jax import Checkpoints
from popart_jax.session.preparing.shards import SHARD
from tests.session import nets

folder, rules = pathlib.Path(sys.argv[1]), sys.argv[2]
options = popart.SessionOptions()
popdist.popart.configureSessionOptions(options)
if rules != "whole":
    options.engineOptions[SHARD] = rules
rule = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
proto = sharding.model(16)
session = popart.TrainingSession(proto.SerializeToString(), nets.flow(1, {"loss": "All"}), "loss", rule, nets.device(),
                                 userOptions=options)
session.prepareDevice()
session.setRandomSeed(3)
session.weightsFromHost()
held = session._held().arrays["table"]
print("part", held.addressable_shards[0].data.size / held.size, flush=True)
saved = Checkpoints(folder / "saved")
offset, count = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
anchors = session.initAnchorArrays()
first = saved.restore(session)
for step in range(first, int(sys.argv[3])):
    x = np.random.default_rng(step).integers(0, 64, (2, 4, 16)).astype(np.int32)
    session.run(popart.PyStepIO({"x": np.ascontiguousarray(x[offset : offset + count])}, anchors))
    saved.save(session, step + 1)
weights = {t.name: np.empty(tuple(t.dims), np.float32) for t in proto.graph.initializer}
session.weightsToHost()
session.readWeights(popart.PyWeightsIO(weights))
np.savez(folder / f"{rules}{jax.process_index()}.npz", **weights)
print("began at", first, flush=True)
"""


def run(folder, rules, steps, *layout) -> str:
    folder.mkdir(exist_ok=True)
    code, out, err = finish(start("launch", *layout, script(folder, PROGRAM), folder, rules, steps))
    assert code == 0, err
    return out


def weights(folder, rules, index=0):
    with np.load(folder / f"{rules}{index}.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder, "whole", 4, "-n", 1, "--replicas", 2)
    return weights(folder, "whole")


@pytest.mark.parametrize("rules", ["fsdp", pytest.param("tensor_parallel", marks=pytest.mark.sweep)])
def test_the_numbers_of_one_process(tmp_path, whole, rules):
    out = run(tmp_path, rules, 2, "-n", 2, "--devices", 2, "--replicas", 2)
    assert "[0] part 0.5" in out
    out = run(tmp_path, rules, 4, "-n", 2, "--devices", 2, "--replicas", 2, "--resume")
    assert "[1] began at 2" in out
    for index in range(2):
        for name, value in weights(tmp_path, rules, index).items():
            np.testing.assert_allclose(value, whole[name], rtol=0, atol=1e-6)
