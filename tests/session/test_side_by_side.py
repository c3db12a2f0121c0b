"""Sessions side by side: in threads, one session in several, many at once, and in processes forked after import."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import popart_jax as popart

from . import nets
from .nets import linear, sgd


def training() -> popart.TrainingSession:
    proto, _ = linear()
    made = popart.TrainingSession(proto, nets.flow(1, {"loss": "All"}), "loss", sgd(), nets.device())
    made.prepareDevice()
    made.weightsFromHost()
    return made


def step(session: popart.TrainingSession, x: np.ndarray) -> float:
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    return float(anchors["loss"])


X = np.ones(3, np.float32)


def alone(steps: int) -> list[float]:
    session = training()
    return [step(session, X) for _ in range(steps)]


def test_sessions_in_threads_do_what_they_do_alone() -> None:
    wanted = alone(6)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(alone, [6] * 8)) == [wanted] * 8


def test_one_session_in_several_threads_takes_every_step_once() -> None:
    wanted = alone(40)
    session = training()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: step(session, X), range(40)))
    assert sorted(found) == sorted(wanted)


def test_many_sessions_at_once_keep_to_themselves() -> None:
    sessions = [training() for _ in range(12)]
    for i, session in enumerate(sessions):
        for _ in range(i):
            step(session, X)
    wanted = alone(12)
    assert [step(session, X) for session in sessions] == wanted


FORKED = """
import multiprocessing, sys, warnings
import popart_jax as popart
from popart_jax import to_jax
from tests.session.test_side_by_side import alone
def work(steps, queue): queue.put(alone(steps))
context = multiprocessing.get_context("fork")
queue = context.Queue()
made = [context.Process(target=work, args=(4, queue)) for _ in range(2)]
for p in made: p.start()
found = [queue.get(timeout=240) for _ in made]
for p in made: p.join()
assert found[0] == found[1] == alone(4), found
print("ok")
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked on POSIX")
def test_processes_forked_after_import() -> None:
    found = subprocess.run(
        [sys.executable, "-c", FORKED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.stdout.split()[-1:] == ["ok"], found.stderr[-3000:]


def test_weights_are_read_while_another_thread_trains() -> None:
    session = training()
    seen = []

    def watch(_: int) -> None:
        values = np.empty(3, np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({"w": values}))
        seen.append(values)

    with ThreadPoolExecutor(3) as pool:
        trained = pool.map(lambda _: [step(session, X) for _ in range(30)], range(1))
        watched = pool.map(watch, range(30))
        list(trained), list(watched)
    assert len(seen) == 30
    assert all(np.ptp(values - [1, 2, 3]) == 0 for values in seen)  # each step takes the same from every element
