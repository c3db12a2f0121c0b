"""Runs that are killed and resumed end with the weights of an undisturbed run, bit for bit."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

import popart_jax
from popart_jax import Checkpoints, popxl
from tests.session import nets

from .job import finish, script, start

PROGRAM = """
import os, pathlib, signal, sys, threading
import jax, numpy as np, popart, popdist, popdist.popart
from popart_jax import Checkpoints
from popart_jax import Stream
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
offset, count = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
def source():
    rng = np.random.default_rng(1)
    for _ in range(6):
        yield rng.normal(size=(popdist.getNumTotalReplicas(), 2, 4)).astype(np.float32)[offset : offset + count]
data = Stream(source, session.initAnchorArrays())
saved = Checkpoints(folder / "saved")
first, step = saved.restore(session, data), 0
while data.more(session):
    session.run(data)
    step = data.position()["steps"]
    if step == 4 and not first and killer.split("@")[0] in (str(jax.process_index()), "all"):
        if "@" in killer:  # in the middle of writing
            threading.Timer(float(killer.split("@")[1]), os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    if step == 2:  # before the checkpoints that runs go on from
        session.updateOptimizerFromHost(popart.Adam({"defaultLearningRate": (0.01, False)}))
    saved.save(session, step, data)
w = np.empty((4, 3), np.float32)
session.weightsToHost()
session.readWeights(popart.PyWeightsIO({"w": w}))
np.save(folder / f"w{jax.process_index()}.npy", w)
print("began at", first)
"""


def run(folder: Path, killer: str, *options: object) -> tuple[int, str, str]:
    folder.mkdir(exist_ok=True)
    return finish(start("launch", "-n", 2, *options, script(folder, PROGRAM), folder, killer))


def weights(folder: Path) -> np.ndarray:
    """Those of process 0, after a look at the others'."""
    found = [np.load(path) for path in sorted(folder.glob("w?.npy"))]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    return found[0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> np.ndarray:
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = run(folder, "none")
    assert code == 0, err
    assert "began at 0" in out
    code, _, err = finish(start("launch", "-n", 1, script(folder, PROGRAM), folder, "none"))
    assert code != 0
    assert "has checkpoints up to step 6" in err
    return weights(folder)


def check_end(folder: Path, undisturbed: np.ndarray) -> None:
    np.testing.assert_array_equal(weights(folder), undisturbed)
    assert sorted(p.name for p in (folder / "saved").iterdir()) == ["5", "6"]


@pytest.mark.processes
def test_restarts_go_on_after_one_process_was_killed(tmp_path, undisturbed):
    code, out, err = run(tmp_path, "1", "--restarts", 1)
    assert code == 0, err
    assert "process 1 on localhost was killed by SIGKILL" in err
    assert "began at 3" in out
    check_end(tmp_path, undisturbed)


@pytest.mark.sweep  # the restart above goes on with as many processes, and `--resume` is given below
@pytest.mark.parametrize("killer", ["all", "all@0.02", "0@0.05"])
def test_killed_runs_end_like_an_undisturbed_one(tmp_path, undisturbed, killer):
    assert run(tmp_path, killer)[0] == 137
    code, out, err = run(tmp_path, killer, "--resume")
    assert code == 0, err
    assert "began at " in out
    assert "began at 0" not in out
    check_end(tmp_path, undisturbed)


@pytest.mark.processes
def test_another_number_of_processes_goes_on(tmp_path, undisturbed):
    assert run(tmp_path, "all")[0] == 137  # all were killed in the fourth step
    code, out, err = finish(
        start("launch", "-n", 1, "--devices", 2, "--resume", script(tmp_path, PROGRAM), tmp_path, "none")
    )
    assert code == 0, err
    assert "began at 3" in out
    np.testing.assert_allclose(np.load(tmp_path / "w0.npy"), undisturbed, rtol=0, atol=1e-6)


NET = 'g (float[2,4] x) => (float loss) { y = MatMul(x, w) loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y) }'


def session(width: int = 3, net: str = NET, momentum: float = 0.0) -> popart_jax.TrainingSession:
    proto = nets.model(net, w=np.ones((4, width), np.float32))
    values = {"defaultLearningRate": (0.1, False), "defaultMomentum": (momentum, True)}
    return nets.train(proto, {"loss": "Final"}, popart_jax.SGD(values))


def step(one: popart_jax.TrainingSession) -> None:
    one.run(popart_jax.PyStepIO({"x": np.ones((2, 4), np.float32)}, one.initAnchorArrays()))


def read(one: popart_jax.TrainingSession) -> np.ndarray:
    return nets.weights_of(one, w=np.empty((4, 3), np.float32))["w"]


OTHERS = {
    "shape": (lambda: session(5), r"'w' is float32\[4, 3\] there and float32\[4, 5\] here"),
    "operator": (
        lambda: session(net=NET.replace("loss =", "z = Neg(y) loss =").replace("(y) }", "(z) }")),
        "its graph",
    ),
    "state": (lambda: session(momentum=0.9), "the checkpoint lacks 'Accl"),
}


@pytest.fixture
def saved(tmp_path) -> Checkpoints:
    found = Checkpoints(tmp_path, resume=True)
    one = session()
    assert found.restore(one) == 0
    for number in range(1, 5):
        step(one)
        found.save(one, number)
    assert found.steps() == [3, 4]
    return found


@pytest.mark.parametrize("what", OTHERS)
def test_checkpoints_of_another_model_are_refused_by_name(saved, what):
    make, text = OTHERS[what]
    with pytest.raises(popart_jax.popart_runtime_error, match=f"is of another model: .*{text}"):
        saved.restore(make())


def test_refusals(saved, tmp_path):
    one = session()
    with pytest.raises(popart_jax.popart_exception, match="checkpoints up to step 4"):
        Checkpoints(tmp_path, resume=False).restore(one)
    for path in (tmp_path / "4").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(popart_jax.popart_exception, match="can't be read"):
        saved.restore(one)
    with pytest.raises(popart_jax.popart_exception, match="keep is 0"):
        Checkpoints(tmp_path, keep=0)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    one, saved = session(), Checkpoints(tmp_path, resume=True)
    step(one)
    saved.save(one, 1)
    before = read(one)
    step(one)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))  # no file may grow beyond 20 bytes
    try:
        with pytest.raises(OSError, match="checkpoint of step 2 can't be written"):
            saved.save(one, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.iterdir()] == ["1"]
    other = session()
    assert saved.restore(other) == 1
    np.testing.assert_array_equal(read(other), before)
    saved.save(one, 2)
    assert saved.steps() == [1, 2]


def test_statistics_of_each_replica_come_back(tmp_path):
    """What replicas change each for themselves is kept for each."""
    net = """g (float[4,3,2] x) => (float loss) { n, a, b, c, d = BatchNormalization(x, s, t, mean, var)
        m = Mul(n, n) loss = ai.graphcore.IdentityLoss<reduction = "Sum">(m) }"""
    ones = {name: np.ones(3, np.float32) for name in ("s", "t", "mean", "var")}

    def make() -> popart_jax.TrainingSession:
        return nets.train(nets.model(net, **ones), {"loss": "All"}, nets.sgd(0.01, False), **nets.replicated(2))

    def losses(one: popart_jax.TrainingSession, seed: int) -> np.ndarray:
        return nets.run(one, x=np.random.default_rng(seed).normal(size=(2, 4, 3, 2)).astype(np.float32))["loss"].copy()

    one, saved = make(), Checkpoints(tmp_path, resume=True)
    losses(one, 0)
    saved.save(one, 1)
    held = {n: np.asarray(x) for n, x in one._held().arrays.items()}
    other = make()
    assert saved.restore(other) == 1
    assert {n: np.asarray(x).tobytes() for n, x in other._held().arrays.items()} == {
        n: x.tobytes() for n, x in held.items()
    }
    assert any(x.ndim == 2 and (x[0] != x[1]).any() for x in held.values())
    np.testing.assert_array_equal(losses(other, 1), losses(one, 1))


def test_popxl_programs_go_on(tmp_path):
    def program() -> tuple[popxl.Session, popxl.Tensor]:
        ir = popxl.Ir(replication=2)
        with ir.main_graph, popxl.in_sequence():
            w = popxl.variable(np.arange(3, dtype=np.float32))
            buffer = popxl.remote_buffer((2,), popxl.float32)
            r = popxl.remote_variable(np.ones(2, np.float32), buffer, 0)
            t = popxl.ops.remote_load(buffer, 0)
            popxl.ops.scaled_add_(t, t)
            popxl.ops.remote_store(buffer, 0, t)
            popxl.ops.scaled_add_(w, w)
        return popxl.Session(ir, "ipu_hw"), [w, r]

    saved = Checkpoints(tmp_path, resume=True)
    one, _ = program()
    with one:
        one.run()
        saved.save(one, 1)
    other, tensors = program()
    with other:
        assert saved.restore(other) == 1
        other.run()
        found = [other.get_tensor_data(t) for t in tensors]
    np.testing.assert_array_equal(found[0], np.arange(3) * 4)
    np.testing.assert_array_equal(found[1], np.full(2, 4))
