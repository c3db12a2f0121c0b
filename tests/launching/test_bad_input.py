"""What is wrong is said in every process before the first step: rules, replicas, checkpoints, late processes."""

from __future__ import annotations

import pytest

from .job import finish, script, start

pytestmark = pytest.mark.processes

PROGRAM = """
import pathlib, sys
import jax, numpy as np, popart, popdist.popart
from jax.sharding import PartitionSpec
from popart_jax.session.weights.checkpoints import Checkpoints
from popart_jax.session.preparing.shards import SHARD, rules_text
from popart_jax.session.devices.staging import STAGES
from tests.session import nets

folder = pathlib.Path(sys.argv[1])
NET = "g (float[4] x) => (float loss) {{ y = Mul(x, {0}) loss = ai.graphcore.IdentityLoss<reduction = 'Sum'>(y) }}"

def session(name="w", **changes):
    options = popart.SessionOptions()
    popdist.popart.configureSessionOptions(options)
    for key, value in changes.items():
        if key == "engine":
            for option, text in value.items():
                options.engineOptions[option] = text
        else:
            setattr(options, key, value)
    proto = nets.model(NET.format(name).replace("'", '"'), **{name: np.ones(4, np.float32)})
    made = popart.TrainingSession(proto, nets.flow(1, {"loss": "All"}), "loss", nets.sgd(), nets.device(),
                                  userOptions=options)
    made.prepareDevice()
    made.weightsFromHost()
    return made

def checkpoint():
    Checkpoints(folder, resume=True).save(session(), 1)
    Checkpoints(folder, resume=True).restore(session("another"))

def resumed_by_some():
    Checkpoints(folder, resume=jax.process_index() == 0).restore(session())

CASES = {
    "rules": lambda: session(engine={SHARD: rules_text([("nothing", PartitionSpec("model"))])}),
    "devices": lambda: session(engine={SHARD: "fsdp"}),
    "replicas": lambda: session(globalReplicationFactor=3),
    "stages": lambda: session(engine={STAGES: "devices"}),
    "options": lambda: session(enableStableNorm=bool(jax.process_index())),
    "checkpoint": checkpoint,
    "resumed": resumed_by_some,
}
for name, attempt in CASES.items():
    try:
        attempt()
        print("RAN", name, flush=True)
    except popart.popart_exception as err:
        print("REFUSED", name, str(err).replace(chr(10), " "), flush=True)
"""
TEXTS = {
    "rules": "The rule 'nothing' fits no weight",
    "devices": "at least 2 devices for each replica; 2 replicas have 2 devices",
    "replicas": "globalReplicationFactor is 3, but the processes of this job times the replicas of each are 2 * 1",
    "stages": "popart_jax.stages needs nodes placed on virtual graphs",
    "options": "The option enableStableNorm of the session differs",
    "checkpoint": "is of another model: the checkpoint lacks 'another'; 'w' is in the checkpoint alone",
    "resumed": "The will to resume of the checkpoints differs",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("bad")
    code, out, err = finish(start("launch", "-n", 2, script(folder, PROGRAM), folder / "saved"))
    assert code == 0, err
    return out


@pytest.mark.parametrize("case", TEXTS)
def test_every_process_says_so(found, case):
    for index in range(2):
        lines = [line for line in found.splitlines() if line.startswith(f"[{index}] REFUSED {case} ")]
        assert len(lines) == 1, found
        assert TEXTS[case] in lines[0]


def test_a_process_that_is_late_is_named_by_the_others(tmp_path):
    text = """
import jax, time
from popart_jax.launching.agreement import require_same
if jax.process_index() == 1:
    time.sleep(8)
else:
    require_same("session", {"model": 1}, seconds=2)
"""
    code, _, err = finish(start("launch", "-n", 2, script(tmp_path, text)))
    assert code == 1
    assert "Processes [1] of 2 did not compare their session within 2 s" in err
