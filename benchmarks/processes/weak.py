"""Weak scaling on one machine: ``python -m benchmarks.processes.weak``.

Every process trains one replica on as many samples. One machine's cores are shared by all, so what it can show is the
part of a step that is communication: the same program with and without the sum over replicas, whose gradients stay
apart when each replica is a group of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import popart_jax as popart
from popart_jax import popdist
from popart_jax.popdist.popart import configureSessionOptions

from .agreement import launch

_ROWS, _LAYERS = 32, 3


def prepared(width: int, *, together: bool) -> Callable[[], None]:
    """A training step, after one warm-up step; `together` sums gradients over the replicas."""
    replicas, rng = popdist.getNumTotalReplicas(), np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [_ROWS, width], "x")
    y, names = x, list[str]()
    for _ in range(_LAYERS):
        value = rng.normal(0, width**-0.5, (width, width)).astype(np.float32)
        alone = not together and replicas > 1
        names.append(builder.addInitializedInputTensor(np.stack([value] * replicas) if alone else value))
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, names[-1]])])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    proto = onnx.load_model_from_string(builder.getModelProto())
    if not together and replicas > 1:
        facts = {"comm_group_type": "3", "comm_group_size": "0", "variable_settings": "0"}
        props = {f"__{key}/{name}": value for name in names for key, value in facts.items()}
        onnx.helper.set_model_props(proto, {**{p.key: p.value for p in proto.metadata_props}, **props})
    options = popart.SessionOptions()
    configureSessionOptions(options)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.TrainingSession(
        proto.SerializeToString(), flow, loss, popart.SGD({}), device, userOptions=options
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    io = popart.PyStepIO({x: np.ones((_ROWS, width), np.float32)}, session.initAnchorArrays())
    session.run(io)
    return partial(session.run, io)


def seconds(width: int, steps: int) -> list[float]:
    """Median times of a step with and without the sum, measured alternately."""
    calls = [prepared(width, together=together) for together in (True, False)]
    times: list[list[float]] = [[], []]
    for _ in range(steps):
        for call, mine in zip(calls, times, strict=True):
            popdist.synchronize("turn")
            started = time.perf_counter()
            call()
            mine.append(time.perf_counter() - started)
    return [float(np.median(mine)) for mine in times]


def main(argv: list[str] | None = None) -> int:
    """Print the table; one process of it when asked for a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--part", type=Path, help="be one process, and write here")
    args = parser.parse_args(argv)
    if args.part is not None:
        found = seconds(args.width, args.steps)
        if not jax.process_index():
            args.part.write_text(json.dumps(found))
        return 0
    table = Table("processes", "samples of a step", "step [ms]", "without the sum [ms]", "communication", "efficiency")
    first = None
    for processes in args.processes:
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "found.json"
            words = ("--width", args.width, "--steps", args.steps, "--part", file)
            launch("launch", "-n", processes, "-m", "benchmarks.processes.weak", *words)
            together, apart = json.loads(file.read_text())
        first = first or together
        share = max(0.0, 1 - apart / together)
        figures = (
            f"{1e3 * together:.2f}",
            f"{1e3 * apart:.2f}",
            f"{100 * share:.0f} %",
            f"{100 * first / together:.0f} %",
        )
        table.add_row(str(processes), str(_ROWS * processes), *figures)
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
