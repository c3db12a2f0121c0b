"""Ctrl-C at any moment of a run leaves weights and optimizer state as before it or after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import popart_jax as popart
from popart_jax.execution.uninterrupted import Uninterrupted

from . import nets
from .nets import linear, run, sgd

PROGRAM = """
import random, signal, threading, time, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs
import numpy as np
import popart_jax as popart
N, ROUNDS = 256, int(sys.argv[2])
b = popart.Builder()
x = b.addInputTensor(popart.TensorInfo("FLOAT", [N, N]), "x")
w = b.addInitializedInputTensor(np.zeros((N, N), np.float32), "w")
y = b.aiOnnx.add([x, w])
for _ in range(4):
    y = b.aiOnnx.add([b.aiOnnx.matmul([x, y]), w])
loss = b.aiGraphcore.l1loss([b.aiOnnx.add([w, x])], 1.0, popart.ReductionType.Sum)
flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All"), y: popart.AnchorReturnType("All")})
s = popart.TrainingSession(b.getModelProto(), flow, loss, popart.ConstSGD(1.0),
                           popart.DeviceManager().createCpuDevice())
s.prepareDevice(); s.weightsFromHost()
anchors = s.initAnchorArrays()
feed = np.full((N, N), 1e6, np.float32)  # the gradient of each element of w is 1, in every step
io = popart.PyStepIO({x: feed}, anchors)
s.run(io); s.run(io)
main, done, asked, armed, stop = threading.main_thread().ident, 2, 0, False, False
def interrupt():
    global asked, armed
    rng = random.Random(0)
    while not stop:
        time.sleep(rng.uniform(0.0, 0.02))
        if armed:  # one signal for each time that the loop below has begun, so none arrives outside it
            armed = False
            asked += 1
            signal.pthread_kill(main, signal.SIGINT)
thread = threading.Thread(target=interrupt)
seen, lost = 0, []
def value():
    s.weightsToHost()
    out = np.empty((N, N), np.float32)
    s.readWeights(popart.PyWeightsIO({w: out}))
    return out
thread.start()
while seen < ROUNDS:
    try:
        armed = True
        while True:
            if sys.argv[1] == "direct": s.run(io)
            else: s.run(popart.PyStepIO({x: feed}, anchors))
            done += 1
    except KeyboardInterrupt:
        seen += 1
stop = True
thread.join()
got = value()
steps = -got[0, 0]
assert (got == got[0, 0]).all(), "half a step"
assert steps == int(steps) and done <= steps <= done + seen + 1, (steps, done, seen)
s.run(io)
assert (value() == got - 1).all()
print("ok", seen, asked >= seen)
"""


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="signals to threads are POSIX's")
@pytest.mark.parametrize("way", ["direct", "checked"])
def test_interrupted_steps_are_done_or_not(way: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, "40"], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stdout.split()[0] == "ok"


def test_an_interrupt_waits_for_the_end_of_the_scope() -> None:
    kept = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs

    def stretch() -> None:
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            kept.append("after")

    with pytest.raises(KeyboardInterrupt):
        stretch()
    assert kept == ["after"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_callback_that_raises_leaves_the_weights() -> None:
    """On the way in and on the way out."""
    proto, _ = linear()
    session = popart.TrainingSession(proto, nets.flow(1, {"loss": "All"}), "loss", sgd(), nets.device())
    session.prepareDevice()
    session.weightsFromHost()
    x = np.ones(3, np.float32)
    assert run(session, x=x)["loss"] == 6

    def fails(*_: object) -> np.ndarray:
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        session.run(popart.PyStepIOCallback(fails, lambda *_: None, fails, lambda *_: None))
    assert run(session, x=x)["loss"] == 4.5
