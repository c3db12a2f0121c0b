"""Which modules a process imports that starts a training session from a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from popart_jax import learnt

from ..platforms import ON_CPUS
from .starting import model

pytestmark = ON_CPUS

SCRIPT = """
import sys, numpy as np, popart_jax as popart
flow = popart.DataFlow(2, {sys.argv[2]: popart.AnchorReturnType("All")})
optimizer = popart.Adam({"defaultLearningRate": (0.1, False)})
session = popart.TrainingSession(sys.argv[1], flow, sys.argv[2], optimizer, popart.DeviceManager().createCpuDevice())
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
data = {"x": np.ones((2, 6, 5), np.float32), "labels": np.zeros((2, 6), np.int32)}
for rate in (0.2, 0.1):
    session.updateOptimizerFromHost(popart.Adam({"defaultLearningRate": (rate, False)}))
    session.run(popart.PyStepIO(data, anchors))
session.weightsToHost()
weights = {"w1": np.empty((5, 7), np.float32)}
session.readWeights(popart.PyWeightsIO(weights))
print(weights["w1"].tobytes().hex())
print(*[name for name in ("jax", "onnx", "onnx_ir.serde", "patterns") if name in sys.modules])
"""


@pytest.mark.processes
def test_a_process_needs_neither_jax_nor_onnx(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model()[0])
    environment = {n: v for n, v in os.environ.items() if not n.startswith("POP")}
    environment |= {learnt.FOLDER: str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx"), model()[1]]
    done = [subprocess.run(command, env=environment, check=True, capture_output=True, text=True) for _ in range(2)]
    weights, imported = zip(*(run.stdout.split("\n")[:2] for run in done), strict=True)
    assert weights[0] == weights[1]
    assert [text.split() for text in imported] == [["jax", "onnx", "onnx_ir.serde", "patterns"], []]


BUILT = """
import sys, numpy as np, popart_jax as popart
builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [6, 5], "x")
w = builder.addInitializedInputTensor(np.ones((5, 7), np.float32), "w")
loss = builder.aiGraphcore.l1loss([builder.aiGraphcore.gelu([builder.aiOnnx.matmul([x, w])])], 0.1)
flow, device = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
CHANGE
session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({"x": np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)}, anchors))
print(anchors[loss].tobytes().hex(), "jax" in sys.modules)
"""


@pytest.mark.processes
def test_a_process_whose_builder_needed_jax_leaves_a_file(tmp_path: Path) -> None:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("POP")}
    environment |= {learnt.FOLDER: str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    changed = "import jax; jax.config.update('jax_default_matmul_precision', 'bfloat16')"
    scripts = [BUILT.replace("CHANGE", changed), *[BUILT.replace("CHANGE", "")] * 2]
    done = [
        subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
        for script in scripts
    ]
    losses, imported = zip(*(run.stdout.split() for run in done), strict=True)
    assert imported == ("True", "True", "False")  # the changed setting has left no file
    assert losses[1] == losses[2]
