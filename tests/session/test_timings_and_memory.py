"""What a session tells of itself: how long getting ready took, phase by phase, and what a run will take of memory."""

from __future__ import annotations

import time
from pathlib import Path

import jax
import numpy as np
import pytest

import popart_jax as popart
from popart_jax.__main__ import main
from popart_jax.timings import Timings, phase

WIDTH, BATCH = 64, 8
PHASES = {"load", "types", "patterns", "layout", "trace", "lower", "compile", "weights", "other"}


def dense(batch: int = BATCH, layers: int = 3) -> tuple[bytes, dict[str, np.ndarray], str]:
    """Dense layers on one input: the model, a feed, the result's name."""
    builder = popart.Builder()
    t = builder.addInputTensor(popart.TensorInfo("FLOAT", [batch, WIDTH]), "x")
    for i in range(layers):
        weights = builder.addInitializedInputTensor(np.full((WIDTH, WIDTH), 1 / WIDTH, np.float32), f"w{i}")
        t = builder.aiOnnx.relu([builder.aiOnnx.matmul([t, weights])])
    return builder.getModelProto(), {"x": np.ones((batch, WIDTH), np.float32)}, t


def session(model: bytes, out: str) -> popart.InferenceSession:
    """A session that is not prepared yet."""
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All")})
    return popart.InferenceSession(model, flow, popart.DeviceManager().createCpuDevice())


def test_phases_are_all_there_and_sum_up() -> None:
    model, feed, out = dense()
    session(model, out)  # what it imports is no phase
    started = time.perf_counter()
    made = session(model, out)
    constructed = sum(made.timings.values())
    assert constructed <= time.perf_counter() - started
    assert {"load", "types", "patterns", "other"} <= made.timings.keys() <= PHASES
    made.prepareDevice()
    assert made.timings.keys() == PHASES
    assert sum(made.timings.values()) > constructed
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO(feed, anchors))
    whole = time.perf_counter() - started
    told = made.timings
    assert told.keys() == PHASES | {"first run"}
    assert 0.5 * whole < sum(told.values()) <= whole
    made.run(popart.PyStepIO(feed, anchors))
    assert made.timings == told, "later runs are no part of getting ready"
    np.testing.assert_allclose(anchors[out], 1, rtol=1e-5)


def test_a_phase_within_another_counts_once() -> None:
    timings = Timings()
    with phase("nobody collects"):
        pass
    with timings.collect():
        with phase("outer"):
            time.sleep(0.02)
            with phase("inner"):
                time.sleep(0.03)
        with pytest.raises(ValueError, match="broken"), phase("broken"):
            raise ValueError("broken")
    assert list(timings.seconds) == ["other", "outer", "inner", "broken"]
    assert 0.02 <= timings.seconds["outer"] < 0.02 + timings.seconds["inner"]
    assert timings.seconds["inner"] >= 0.03


def test_the_memory_of_a_run_is_told_before_it() -> None:
    model, _, out = dense()
    made = session(model, out)
    with pytest.raises(popart.popart_runtime_error, match=r"known after prepareDevice\(\)"):
        _ = made.memory
    made.prepareDevice()
    memory = made.memory
    assert memory is not None
    assert memory.arguments == 4 * (3 * WIDTH * WIDTH + BATCH * WIDTH)
    assert memory.results == 4 * BATCH * WIDTH
    assert memory.peak == memory.arguments + memory.results + memory.temporary
    model, _, out = dense(batch=64 * BATCH)
    large = session(model, out)
    large.prepareDevice()
    assert large.memory is not None
    assert large.memory.results == 64 * memory.results
    assert large.memory.temporary >= 63 * memory.results, "one layer's result at least"


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an option for CPUs")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weights_are_updated_in_place(momentum: float) -> None:
    size, layers = 256, 6
    builder = popart.Builder()
    t = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, size]), "x")
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(size, size)).astype(np.float32) / 16 for _ in range(layers)]
    for w in weights:
        t = builder.aiOnnx.tanh([builder.aiOnnx.matmul([t, builder.addInitializedInputTensor(w)])])
    loss = builder.aiGraphcore.l1loss([t], 0.1)
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (momentum, False)})
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device)
    made.prepareDevice()
    state = sum(w.nbytes for w in weights)
    assert made.memory is not None
    assert made.memory.arguments > 2 * state, "weights and velocities"
    assert made.memory.temporary < 0.75 * state, "some gradients at a time, and no copy of weights or velocities"


def test_bench_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.onnx").write_bytes(dense()[0])
    assert main(["bench", str(tmp_path / "model.onnx"), "--repeats", "1", "--explain"]) == 0
    shown = capsys.readouterr().out
    for name in ("load", "layout", "trace", "lower", "compile", "weights", "first run", "together"):
        assert name in shown
