"""Runs that are killed and resumed end with the weights of an undisturbed run, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import popart_jax
from popart_jax.session.checkpoints import Checkpoints
from tests.session import nets

from .job import finish, script, start

PROGRAM = """
import os, pathlib, signal, sys
import jax, numpy as np, popart, popdist, popdist.popart
from popart_jax.session.checkpoints import Checkpoints
from tests.session import nets

folder, killer = pathlib.Path(sys.argv[1]), sys.argv[2]
options = popart.SessionOptions()
popdist.popart.configureSessionOptions(options)
rng = np.random.default_rng(0)
text = \"\"\"g (float[2,4] x) => (float loss) { y = MatMul(x, w) d = Dropout<ratio = 0.25>(y)
    loss = ai.graphcore.L1<lambda = 0.5, reduction = "Mean">(d) }\"\"\"
proto = nets.model(text, w=rng.normal(size=(4, 3)).astype(np.float32))
rule = popart.Adam({"defaultLearningRate": (0.05, False)})
session = popart.TrainingSession(proto, nets.flow(1, {"loss": "All"}), "loss", rule, nets.device(), userOptions=options)
session.prepareDevice()
session.setRandomSeed(5)
session.weightsFromHost()
saved = Checkpoints(folder / "saved")
first = saved.restore(session)
offset, count = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
for step in range(first, 6):
    x = np.random.default_rng(step).normal(size=(popdist.getNumTotalReplicas(), 2, 4)).astype(np.float32)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ascontiguousarray(x[offset : offset + count])}, anchors))
    if step == 3 and not first and killer in (str(jax.process_index()), "all"):
        os.kill(os.getpid(), signal.SIGKILL)
    saved.save(session, step + 1)
w = np.empty((4, 3), np.float32)
session.weightsToHost()
session.readWeights(popart.PyWeightsIO({"w": w}))
np.save(folder / f"w{jax.process_index()}.npy", w)
print("began at", first)
"""


def run(folder: Path, killer: str, *options: object) -> tuple[int, str, str]:
    folder.mkdir(exist_ok=True)
    return finish(start("launch", "-n", 2, *options, script(folder, PROGRAM), folder, killer))


def test_killed_runs_end_like_an_undisturbed_one(tmp_path):
    code, out, err = run(tmp_path / "whole", "none")
    assert code == 0, err
    assert "began at 0" in out
    want = np.load(tmp_path / "whole" / "w0.npy")
    np.testing.assert_array_equal(want, np.load(tmp_path / "whole" / "w1.npy"))
    code, out, err = run(tmp_path / "one", "1", "--restarts", 1)
    assert code == 0, err
    assert "process 1 on localhost was killed by SIGKILL" in err
    assert "began at 3" in out or "began at 4" in out  # process 0 may have written while the other died
    assert run(tmp_path / "all", "all")[0] == 137
    code, out, err = run(tmp_path / "all", "all", "--resume")
    assert code == 0, err
    assert "began at 3" in out
    for name in ("one", "all"):
        np.testing.assert_array_equal(np.load(tmp_path / name / "w0.npy"), want)
    code, _, err = run(tmp_path / "all", "none")
    assert code != 0
    assert "has checkpoints up to step 6" in err


def session(width: int = 3) -> popart_jax.TrainingSession:
    net = 'g (float[2,4] x) => (float loss) { y = MatMul(x, w) loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y) }'
    proto = nets.model(net, w=np.ones((4, width), np.float32))
    return nets.train(proto, {"loss": "Final"}, popart_jax.SGD({"defaultLearningRate": (0.1, False)}))


def step(one: popart_jax.TrainingSession) -> None:
    one.run(popart_jax.PyStepIO({"x": np.ones((2, 4), np.float32)}, one.initAnchorArrays()))


def test_refusals_and_what_is_kept(tmp_path):
    one, saved = session(), Checkpoints(tmp_path, resume=True)
    assert saved.restore(one) == 0
    for number in range(1, 5):
        step(one)
        saved.save(one, number)
    assert saved.steps() == [3, 4]
    with pytest.raises(popart_jax.popart_runtime_error, match="'w' is float32"):
        saved.restore(session(5))
    with pytest.raises(popart_jax.popart_exception, match="checkpoints up to step 4"):
        Checkpoints(tmp_path, resume=False).restore(one)
    newest = tmp_path / "step-0000000004.npz"
    newest.write_bytes(newest.read_bytes()[:-50])
    with pytest.raises(popart_jax.popart_exception, match="can't be read"):
        saved.restore(one)


def test_failed_write_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    one, saved = session(), Checkpoints(tmp_path, resume=True)
    saved.save(one, 1)
    before = np.array(one._weights.copy["w"])
    step(one)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        saved.save(one, 2)
    monkeypatch.undo()
    other = session()
    step(other)
    assert saved.restore(other) == 1
    np.testing.assert_array_equal(other._weights.copy["w"], before)
