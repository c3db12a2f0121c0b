"""``train`` and ``bench``: what is learnt is right, what is saved is what ONNX Runtime runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from popart_jax.__main__ import main

from .test_commands import refused

LINEAR = """<ir_version: 8, opset_import: ["": 17]>
g(float[N,3] x) => (float[N,2] y) <float[3,2] w = {0,0,0,0,0,0}, float[2] b = {0,0}>
{ h = MatMul(x, w) y = Add(h, b) }"""
TRUE = np.array([[1, -2], [0.5, 0], [3, 1]], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(LINEAR), tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, target=x @ TRUE + 1, label=np.argmax(x @ TRUE, 1))
    return tmp_path / "m.onnx"


def train(model: Path, *arguments: object) -> list[str]:
    folder = model.parent
    given = ["train", model, "--data", folder / "data.npz", "--out", folder / "out.onnx", *arguments]
    return [str(a) for a in given]


def served(path: Path, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(path).run(None, {"x": x})[0])


def test_a_linear_model_is_found_again(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(train(model, "--loss", "mse", "--rate", "0.05", "--steps", "400")) == 0
    out = model.parent / "out.onnx"
    x = np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(served(out, x), TRUE + 1, atol=0.02)
    assert "in 400 steps" in capsys.readouterr().out


def test_labels_and_frozen_weights(model: Path) -> None:
    more = ["--loss", "cross_entropy", "--target", "label", "--rate", "0.1", "--trainable", "w"]
    assert main(train(model, *more)) == 0
    with np.load(model.parent / "data.npz") as data:
        x, label = data["x"], data["label"]
    out = model.parent / "out.onnx"
    assert np.mean(np.argmax(served(out, x), 1) == label) > 0.95
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    np.testing.assert_array_equal(kept["b"], [0, 0])


REFUSED = [
    (["--loss", "huber"], "none of ['mse', 'l1', 'cross_entropy', 'y']"),
    (["--loss", "mse", "--target", "t"], "lacks ['t']; it holds ['label', 'target', 'x']"),
    (["--loss", "mse", "--target", "label"], "shape [32, 2], the target [32]"),
    (["--loss", "mse", "--steps", "0"], "--steps 0: expected at least 1"),
    (["--loss", "mse", "--trainable", "z*"], "z*"),
    (["--loss", "mse", "--rate", "1e38"], "nothing was saved"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_refusals(model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    told = refused(capsys, *train(model, *arguments))
    assert message in told
    assert "JAX has removed its internal frames" not in told
    assert not (model.parent / "out.onnx").exists()


def test_bench_beside_another_runtime(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(model), "--dim", "N=4", "--against", "onnxruntime", "--repeats", "3"]) == 0
    told = capsys.readouterr().out
    assert "onnxruntime" in told
    assert "1.00" in told
    assert "at least 1" in refused(capsys, "bench", model, "--repeats", "0")


@pytest.mark.processes
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_sees_how_far_it_is(model: Path, terminal: bool) -> None:
    ours, theirs = os.openpty()
    seen: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 1 << 16):
                seen.append(part)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    command = [sys.executable, "-m", "popart_jax", *train(model, "--loss", "mse", "--steps", "30")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TERM": "xterm", "COLUMNS": "120"}
    errors = theirs if terminal else subprocess.PIPE
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, env=environment, timeout=120, check=True)
    os.close(theirs)
    reader.join(10)
    os.close(ours)
    assert done.stdout.decode().startswith("loss ")
    assert (b"loss" in b"".join(seen)) == terminal
    assert not done.stderr
