"""Marks for PopVision's System Analyser: a trace of what the program says, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from popart_jax import libpvti as pvti
from popart_jax.errors import poplar_exception


def program() -> None:
    """A training loop as tutorials mark it."""
    channel = pvti.createTraceChannel("training")
    series = pvti.Graph("Loss", "nats").addSeries("training")

    @pvti.instrument(channel, ["step"])
    class Model:
        @pvti.instrument_fn(channel)
        def load(self, number: int) -> int:
            return number + 1

        def step(self) -> None:
            pvti.Tracepoint.event(channel, "weights sent")

    with pvti.Tracepoint(channel, "epoch 0"):
        assert Model().load(2) == 3
        Model().step()
        series.add(0.5)
    with pytest.raises(ValueError), pvti.Tracepoint(channel, "epoch 1"):
        raise ValueError


def marks(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.iterdir()
    return [json.loads(line.rstrip(",")) for line in file.read_text().splitlines()[1:]]


def test_a_trace_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(pvti.OPTIONS, json.dumps({"enable": "true", "directory": str(tmp_path / "traces")}))
    program()
    found = marks(tmp_path / "traces")
    names = [(m["ph"], m["name"].rpartition(".")[2]) for m in found]
    assert names == [
        ("B", "epoch 0"), ("B", "load"), ("E", "load"), ("B", "step"), ("i", "weights sent"), ("E", "step"),
        ("C", "Loss [nats]"), ("E", "epoch 0"), ("B", "epoch 1"), ("E", "epoch 1"),
    ]  # fmt: skip
    assert found[6]["args"] == {"training": 0.5}
    assert {m["cat"] for m in found if m["ph"] != "C"} == {"training"}
    times = [m["ts"] for m in found]
    assert times == sorted(times)
    assert len({(m["pid"], m["tid"]) for m in found}) == 1


@pytest.mark.parametrize("options", ["", "{}", '{"enable": "false"}'])
def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(pvti.OPTIONS, options)
    program()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", ["{", "[1]"])
def test_options_that_are_none(monkeypatch: pytest.MonkeyPatch, options: str):
    monkeypatch.setenv(pvti.OPTIONS, options)
    with pytest.raises(poplar_exception, match="PVTI_OPTIONS must be a JSON object, got"):
        program()
