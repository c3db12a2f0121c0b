"""What the builder learns of operators by importing JAX saves later processes that import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from popart_jax import learnt

SCRIPT = """
import sys, popart_jax as popart
{before}
b = popart.Builder()
x, y = b.addInputTensor("FLOAT", [6, 5], "x"), b.addInputTensor("INT32", [6], "y")
h = b.aiOnnx.dropout([b.aiGraphcore.gelu([x])], 1, 0.5)[0]
loss = b.aiGraphcore.nllloss([b.aiOnnx.softmax([h]), y], {reduction})
sum_ = b.aiGraphcore.identityloss([loss], popart.ReductionType.Sum)
print([b.getTensorShape(n) for n in (h, loss, sum_)], b.getTensorDtypeString(loss), end=" ")
try:
    b.aiGraphcore.nllloss([x])
except popart.popart_exception as err:
    print(err, end=" ")
try:
    b.aiGraphcore.l1loss([x], "much")
except TypeError as err:
    print(err, end=" ")
b.getModelProto()
print("jax" in sys.modules)
"""
TOLD = "[[6, 5], {shape}, []] float32 Nll has invalid number of inputs 1. Must be between 2..2 "


def built(cache: Path, reduction: str = "popart.ReductionType.NoReduction", before: str = "", **more: str) -> list[str]:
    """What the script prints, without the end of the error about "much", and its last word."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith("POP")} | {learnt.FOLDER: str(cache)} | more
    script = SCRIPT.format(reduction=reduction, before=before)
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert "Failed" not in done.stderr or "Failed to read" in done.stderr
    text = done.stdout.split()
    return [" ".join(text[:-1]), text[-1]]


@pytest.mark.processes
def test_a_later_process_builds_without_jax(tmp_path: Path) -> None:
    first, second = built(tmp_path), built(tmp_path)
    assert first[0].startswith(TOLD.format(shape=[6]))
    assert first[0] == second[0]
    assert [first[1], second[1]] == ["True", "False"]
    other = built(tmp_path, "popart.ReductionType.Mean")  # has other types
    assert other[0].startswith(TOLD.format(shape=[]))
    assert other[1] == "True"
    assert [built(tmp_path, "popart.ReductionType.Mean")[1], built(tmp_path)[1]] == ["False", "False"]
    for path in tmp_path.glob("*.popef"):
        path.write_bytes(path.read_bytes().replace(b"6", b"7"))
    damaged = built(tmp_path)
    assert damaged == first


OWN = """
from popart_jax.ops.registry import lowers
@lowers("Nll", domain="ai.graphcore", popart=True)
def nll(probs, labels, /, *, reduction, inputIsLogProbability=0, ignoreIndex=None):
    return probs
"""


@pytest.mark.processes
def test_what_a_program_defines_is_not_learnt(tmp_path: Path) -> None:
    late = "popart.Builder().aiGraphcore.gelu" + OWN  # the program takes over when others might have been learnt
    shown = [built(tmp_path, before=before) for before in (OWN, late, "", "", OWN)]
    own = [text.startswith("[[6, 5], [6, 5]") for text, _ in shown]
    assert own == [True, True, False, False, True]
    assert [imported for _, imported in shown] == ["True", "True", "True", "False", "True"]


@pytest.mark.processes
def test_another_environment_learns_by_itself(tmp_path: Path) -> None:
    built(tmp_path)
    assert built(tmp_path, JAX_DEFAULT_MATMUL_PRECISION="highest")[1] == "True"
    assert built(tmp_path)[1] == "False"


@pytest.fixture
def without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt, "sys", SimpleNamespace(modules={}))


@pytest.mark.usefixtures("without_jax")
def test_processes_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "popart_jax-1.popef"
    one, two = learnt.Learnt(path), learnt.Learnt(path)
    one.note("a", [1, None])
    two.note("b", "x")
    one.keep()
    two.keep()
    third = learnt.Learnt(path)
    assert [third.recall(key) for key in "abc"] == [[1, None], "x", None]


def test_with_jax_there_nothing_is_recalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "popart_jax-1.popef"
    one = learnt.Learnt(path)
    one.note("a", 1)
    one.keep()
    assert learnt.Learnt(path).recall("a") is None
    monkeypatch.setattr(learnt, "sys", SimpleNamespace(modules={}))
    assert learnt.Learnt(path).recall("a") == 1


@pytest.mark.usefixtures("without_jax")
@pytest.mark.parametrize("damage", ["cut", "empty", "seal", "another user"])
def test_a_damaged_file_is_as_none(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "popart_jax-1.popef"
    one = learnt.Learnt(path)
    one.note("a", 1)
    one.keep()
    data = path.read_bytes()
    made: dict[str, Any] = {"cut": data[:-2], "empty": b"", "seal": data[1:], "another user": data}
    path.write_bytes(made[damage])
    if damage == "another user":
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    again = learnt.Learnt(path)
    assert again.recall("a") is None
    assert "Failed to read" in caplog.text
    again.note("a", 2)
    again.keep()
    assert learnt.Learnt(path).recall("a") == 2
