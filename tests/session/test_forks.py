"""Processes forked after the import: importing starts no device and no thread that a fork would lose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import os, sys, threading, warnings
import numpy as np
import popart_jax as popart
import popart_jax.popxl, popart_jax.popxl_addons, popart_jax.session.core, popart_jax.backend

def trained(rate):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]), "x")
    w = builder.addInitializedInputTensor(np.ones((3, 1), np.float32), "w")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(rate), device)
    made.prepareDevice()
    made.weightsFromHost()
    made.run(popart.PyStepIO({x: np.ones((2, 3), np.float32)}, made.initAnchorArrays()))
    found = np.zeros((3, 1), np.float32)
    made.weightsToHost()
    made.readWeights(popart.PyWeightsIO({w: found}))
    return found[0, 0]

assert threading.active_count() == 1
children = []
for rate in (0.25, 0.5):
    child = os.fork()
    if child == 0:
        os._exit(0 if abs(trained(rate) - (1 - rate)) < 1e-6 else 1)
    children.append(child)
assert abs(trained(0.125) - 0.875) < 1e-6
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_processes_train_each_for_themselves(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.stdout == "[0, 0]\n", ran.stderr
