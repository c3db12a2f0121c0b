"""Seconds from ``kill -9`` to the error and to the resumed first step: ``python -m benchmarks.processes.lost``."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

_PROGRAM = """
import os, sys, time
import numpy as np, onnx, popart, popdist, popdist.popart
from popart_jax import Checkpoints

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [2, 8], "x")
w = builder.addInitializedInputTensor(np.full((8, 4), 0.1, np.float32), "w")
loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 0.1)
options = popart.SessionOptions()
popdist.popart.configureSessionOptions(options)
device = popart.DeviceManager().createIpuModelDevice({})
rule = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
session = popart.TrainingSession(builder.getModelProto(), popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
                                 loss, rule, device, userOptions=options)
session.prepareDevice()
session.weightsFromHost()
saved = Checkpoints(sys.argv[1])
anchors, data = session.initAnchorArrays(), np.ones((popdist.getNumLocalReplicas(), 2, 8), np.float32)
for step in range(saved.restore(session), 10**6):
    session.run(popart.PyStepIO({x: data}, anchors))
    saved.save(session, step + 1)
    print("step", step, os.getpid(), flush=True)
    time.sleep(0.05)
"""


def _lines(job: subprocess.Popen[str], begin: str) -> Iterator[list[str]]:
    """Words of those output lines of a job that start with `begin`."""
    assert job.stdout is not None
    for line in job.stdout:
        if line.startswith(begin):
            yield line.split()


def measure(processes: int, victim: int) -> tuple[float, float, str]:
    """Seconds to the error and to the first step behind the restart, and the line that names the process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program.py"
        program.write_text(_PROGRAM)
        words = ["launch", "-n", str(processes), "--restarts", "1", str(program), str(folder / "saved")]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        pipe = subprocess.PIPE
        job = subprocess.Popen([sys.executable, "-m", "popart_jax", *words], env=environment, stdout=pipe,
                               stderr=subprocess.STDOUT, text=True)  # fmt: skip
        try:
            first = next(words for words in _lines(job, f"[{victim}] step") if int(words[2]) >= 3)
            killed = time.monotonic()
            os.kill(int(first[3]), signal.SIGKILL)
            error = next(_lines(job, "launch: process"))
            named = time.monotonic() - killed
            again = next(_lines(job, f"[{victim}] step"))
            while again[3] == first[3]:
                again = next(_lines(job, f"[{victim}] step"))
            return named, time.monotonic() - killed, " ".join(error)
        finally:
            job.send_signal(signal.SIGINT)
            job.wait()


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args(argv)
    table = Table("processes", "killed", "to the error [s]", "to the resumed first step [s]", "the error")
    for processes in args.processes:
        for victim in (0, processes - 1):
            rows = [measure(processes, victim) for _ in range(args.runs)]
            times = (f"{statistics.median(t):.2f}" for t in list(zip(*rows, strict=True))[:2])
            table.add_row(str(processes), str(victim), *times, rows[0][2])
    Console(width=130).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
