"""Mixed work for a long time: ``python -m benchmarks.soak [SECONDS] [--write FILE.md]``.

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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import popart_jax as popart
from benchmarks.many_sessions import resident, session

_STRETCHES, _WARM = 10, 3
_MOST_GROWTH = 0.02
_WIDTHS = (5, 16, 33, 64, 100, 200)
"""Only a few widths: what JAX compiles for operators outside `jit` is kept for each shape."""


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


@dataclass(frozen=True)
class Stretch:
    """Resources in use at the end of a tenth of the time."""

    seconds: float
    rounds: int
    megabytes: float
    threads: int
    open_files: int
    written: int


def main(seconds: float, target: Path | None = None) -> int:
    """Exit status 0 when nothing grew and nothing is left; the figures go to `target`, too, as a table."""
    dice, begin, done = random.Random(0), time.time(), 0
    rows: list[Stretch] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for stretch in itertools.count(1):
            while time.time() < begin + seconds * stretch / _STRETCHES:
                session(dice.choice(_WIDTHS))
                training(dice.choice(_WIDTHS), folder)
                done += 1
            handles, files = len(os.listdir("/proc/self/fd")), len(list(folder.iterdir()))
            rows.append(Stretch(time.time() - begin, done, resident(), threading.active_count(), handles, files))
            print(_row(rows[-1]), flush=True)
            if stretch == _STRETCHES:
                break
    growth = rows[-1].megabytes / rows[_WARM - 1].megabytes - 1
    print(f"memory grew by {100 * growth:.1f} % since stretch {_WARM}")
    if target is not None:
        target.write_text("\n".join([_HEAD, *map(_row, rows), ""]))
    left = len({row.threads for row in rows[_WARM:]}) > 1 or rows[-1].written != 1
    return int(growth > _MOST_GROWTH or left)


_HEAD = "| seconds | rounds | resident | threads | open files | files written |\n| --- | --- | --- | --- | --- | --- |"


def _row(at: Stretch) -> str:
    return f"| {at.seconds:.0f} | {at.rounds} | {at.megabytes:.1f} MB | {at.threads} | {at.open_files} | {at.written} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=1800, help="how long (%(default)s)")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="the figures as a table")
    args = parser.parse_args()
    sys.exit(main(args.seconds, args.write))
