"""The program of `data_parallel` with many command lines: all of them compute what torch computes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from popart_jax import dropin

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
SCRIPT = Path(__file__).with_name("data_parallel.py")
STEPS, BATCH = 6, 48


@pytest.fixture(scope="module")
def program():
    """The script as a module, its imports resolved by the drop-in."""
    dropin.install()
    spec = importlib.util.spec_from_file_location("data_parallel", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    dropin.uninstall()


@pytest.fixture(scope="module")
def expected(program):
    """Weights after the same steps with torch, and the losses."""
    weights = {n: torch.tensor(w, requires_grad=True) for n, w in program.start().items()}
    optimizer = torch.optim.SGD(weights.values(), lr=program.RATE, momentum=program.MOMENTUM)
    images, labels = (torch.tensor(x) for x in program.digits())
    losses = []
    for step in range(STEPS):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH)
        h = torch.relu(images[rows] @ weights["w1"] + weights["b1"])
        loss = torch.nn.functional.cross_entropy(h @ weights["w2"] + weights["b2"], labels[rows].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {n: w.detach().numpy() for n, w in weights.items()}, losses


LINES = [
    "",
    "--accumulation 3",
    "--io io --code-load",
    "--accumulation 2 --io io_overlapped --code-load",
    "--replicas 2",
    "--replicas 4 --accumulation 3",
    "--replicas 2 --weights sharded",
    "--replicas 4 --weights sharded --accumulation 3 --io io",
    "--replicas 2 --weights remote",
    "--replicas 4 --weights remote --accumulation 2 --io io_overlapped --code-load",
    "--stages 3 --accumulation 6",
    "--stages 3 --accumulation 8 --io io --code-load",
    "--stages 3 --accumulation 6 --replicas 2 --weights sharded",
    "--stages 3 --accumulation 6 --replicas 4 --weights remote --io io_overlapped",
]


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_trains_alike(program, expected, line):
    args = program.options([*line.split(), "--steps", str(STEPS), "--batch", str(BATCH)])
    weights, losses = program.train(args)
    np.testing.assert_allclose(losses, expected[1], rtol=1e-4)
    for name, w in expected[0].items():
        np.testing.assert_allclose(weights[name], w, rtol=1e-4, atol=1e-5, err_msg=f"{name} with {line}")


@pytest.mark.processes
def test_the_script_runs_by_itself():
    command = [sys.executable, "-m", "popart_jax", str(SCRIPT), "--replicas", "2", "--weights", "sharded"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    first, last = (float(part.split()[-1]) for part in done.stdout.strip().split(","))
    assert last < 0.7 * first
