"""What type checkers know of the generated namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from popart_jax.builder import builder, stubs

HOME = Path(__file__).parents[2]
RIGHT = """
import popart_jax as popart
b = popart.Builder()
x = b.addInputTensor("FLOAT", [2, 3])
y: str = b.aiOnnx.relu([x])
both: list[str] = b.aiOnnx.split([x], 2, 1, [1, 2])
z = b.aiGraphcore.l1loss([y], 0.1, popart.ReductionType.Sum)
w = b.aiOnnxOpset18.layernormalization([x, x], 1)
v = b.reshape_const(b.aiOnnx, [x], [3, 2])
"""
WRONG = {
    "b.aiOnnx.rulu([x])": "rulu",
    "b.aiOnnx.relu(3)": "list[str]",
    "b.aiOnnxOpset9.roialign([x], 3)": "roialign",
    "b.aiGraphcore.l1los([x], 0.1)": "l1los",
    "b.aiOnyx.relu([x])": "aiOnyx",
}


def test_the_file_is_current() -> None:
    assert stubs.FILE.read_text(encoding="utf-8") == stubs.text(), "python -m popart_jax.builder.stubs writes it"


def _program(tmp_path: Path) -> tuple[Path, int]:
    path = tmp_path / "program.py"
    path.write_text(RIGHT + "\n".join(WRONG) + "\n", encoding="utf-8")
    return path, RIGHT.count("\n")


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_tells_right_from_wrong(tmp_path: Path) -> None:
    path, first = _program(tmp_path)
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(HOME)]}), encoding="utf-8")
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment).stdout
    found = {e["range"]["start"]["line"]: e["message"] for e in json.loads(said)["generalDiagnostics"]}
    _compare(found, first)


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_tells_right_from_wrong(tmp_path: Path) -> None:
    path, first = _program(tmp_path)
    environment = {**os.environ, "MYPYPATH": str(HOME)}
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path / "c"), str(path)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment).stdout
    lines = [line.split(":", 3) for line in said.splitlines() if ": error:" in line]
    assert all(parts[0] == path.name for parts in lines), said
    _compare({int(number) - 1: text for _, number, _, text in lines}, first)


def _compare(found: dict[int, str], first: int) -> None:
    assert sorted(found) == [first + i for i in range(len(WRONG))], found
    for i, word in enumerate(WRONG.values()):
        assert word in found[first + i]


def test_split_since_opset_18_says_how_many() -> None:
    b = builder.Builder(opsets={"ai.onnx": 18, "ai.graphcore": 1})
    x = b.addInputTensor("FLOAT", [6])
    for name in b.aiOnnxOpset18.split([x], 3):
        b.addOutputTensor(name)
    session = onnxruntime.InferenceSession(b.getModelProto())
    assert [list(y) for y in session.run(None, {x: np.arange(6, dtype=np.float32)})] == [[0, 1], [2, 3], [4, 5]]
