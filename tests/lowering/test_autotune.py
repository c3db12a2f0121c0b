"""Compiler options by measurement are written down and found again."""

from __future__ import annotations

import json

import jax
import numpy as np

import popart_jax as popart
from popart_jax.lowering.passes import autotune

from ..platforms import ON_CPUS

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def run(options: popart.SessionOptions | None = None) -> np.ndarray:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4]), "x")
    w = builder.addInitializedInputTensor(np.full((4, 3), 0.5, np.float32), "w")
    y = builder.aiOnnx.matmul([x, w])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(
        builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice(), userOptions=options
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: X}, anchors))
    return anchors[y]


def test_off_by_default(monkeypatch):
    monkeypatch.delenv(autotune.VARIABLE, raising=False)
    assert autotune.folder() is None


@ON_CPUS
def test_findings_are_kept_and_used(monkeypatch, tmp_path):
    monkeypatch.setenv(autotune.VARIABLE, str(tmp_path))
    monkeypatch.setitem(autotune.CANDIDATES, "cpu", ({"xla_cpu_enable_fast_math": "False"},))
    np.testing.assert_allclose(run(), X @ np.full((4, 3), 0.5))
    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text())
    assert found["options"] in found["candidates"]
    assert len(found["seconds"]) == len(found["candidates"]) == 2
    measured = []
    monkeypatch.setattr(autotune, "_time", lambda *a: measured.append(a) or 0.0)
    np.testing.assert_allclose(run(), X @ np.full((4, 3), 0.5))
    assert not measured


@ON_CPUS
def test_on_with_one_engine_option(monkeypatch, tmp_path):
    monkeypatch.delenv(autotune.VARIABLE, raising=False)
    monkeypatch.setitem(autotune.CANDIDATES, "cpu", ({"xla_cpu_enable_fast_math": "False"},))
    options = popart.SessionOptions()
    options.engineOptions[autotune.ENGINE_OPTION] = str(tmp_path)
    np.testing.assert_allclose(run(options), X @ np.full((4, 3), 0.5))
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_program_that_says_off_overrules_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv(autotune.VARIABLE, str(tmp_path))
    assert autotune.folder("false") is None
    assert autotune.folder() == tmp_path
    assert autotune.folder("true") == autotune.folder(True) != tmp_path


def test_xla_takes_every_candidate():
    lowered = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((4,), np.float32))
    for options in autotune.CANDIDATES["cpu"]:
        lowered.compile(compiler_options=dict(options))
