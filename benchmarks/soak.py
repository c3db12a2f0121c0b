"""Mixed work for a long time: ``python -m benchmarks.soak [SECONDS]``.

Sessions of changing shapes, training, saving, profiling and `to_jax`, one after the other. Prints resident memory,
threads and files that are left, in ten stretches; exit status 1 when memory grew by more than 2 % after the first
three, or anything else is left.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import popart_jax as popart
from benchmarks.many_sessions import resident, session

_STRETCHES, _WARM = 10, 3
_MOST_GROWTH = 0.02
_WIDTHS = (5, 16, 33, 64, 100, 200)
"""Few: what JAX compiles for an operator outside `jit` stays, once for each shape."""


def training(width: int, folder: Path) -> None:
    """Train a few steps, save the weights, read them back as a JAX function."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, width]), "x")
    w = builder.addInitializedInputTensor(np.full((width, 3), 0.1, np.float32), "w")
    y = builder.aiOnnx.matmul([x, w])
    loss = builder.aiGraphcore.l1loss([y], 0.1, debugContext="loss")
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    made = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.01), popart.DeviceManager().createIpuModelDevice({})
    )
    made.prepareDevice()
    made.weightsFromHost()
    io = popart.PyStepIO({x: np.ones((2, width), np.float32)}, made.initAnchorArrays())
    for _ in range(5):
        made.run(io)
    path = folder / "trained.onnx"
    made.modelToHost(str(path))
    made.getSummaryReport()
    fn, params = popart.to_jax(path)
    fn(params, {"x": np.ones((2, width), np.float32)})


def main(seconds: float) -> int:
    """Exit status 0 when nothing grew and nothing is left."""
    dice, begin, done = random.Random(0), time.time(), 0
    memory, rows = [], []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for stretch in itertools.count(1):
            while time.time() < begin + seconds * stretch / _STRETCHES:
                session(dice.choice(_WIDTHS))
                training(dice.choice(_WIDTHS), folder)
                done += 1
            memory.append(resident())
            rows.append((threading.active_count(), len(os.listdir("/proc/self/fd")), len(list(folder.iterdir()))))
            threads, handles, files = rows[-1]
            print(
                f"{time.time() - begin:7.0f} s {done:6} rounds {memory[-1]:8.1f} MB {threads:3} threads "
                f"{handles:4} open files {files:3} written",
                flush=True,
            )
            if stretch == _STRETCHES:
                break
    growth = memory[-1] / memory[_WARM - 1] - 1
    print(f"memory grew by {100 * growth:.1f} % since stretch {_WARM}")
    return int(growth > _MOST_GROWTH or len({row[0] for row in rows[_WARM:]}) > 1 or rows[-1][2] != 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=1800, help="how long (%(default)s)")
    sys.exit(main(parser.parse_args().seconds))
