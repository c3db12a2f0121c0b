"""Steps with and without drawing the next one's data ahead: ``python -m benchmarks.processes.prefetch``.

The source waits as one that reads from a disk or a network does. On and off alternate, so that what else the machine
does falls on both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

import popart_jax as popart
from popart_jax import Stream

_ROWS = 64


def session(width: int, layers: int) -> popart.TrainingSession:
    """Dense layers trained by gradient descent."""
    builder, rng = popart.Builder(), np.random.default_rng(0)
    x = builder.addInputTensor("FLOAT", [_ROWS, width], "x")
    y = x
    for _ in range(layers):
        w = builder.addInitializedInputTensor(rng.normal(0, width**-0.5, (width, width)).astype(np.float32))
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, w])])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.SGD({}), device)
    made.prepareDevice()
    made.weightsFromHost()
    return made


def seconds(one: popart.TrainingSession, width: int, steps: int, wait: float, prefetch: int) -> float:
    """Mean time of a step [s]."""
    batch = np.ones((_ROWS, width), np.float32)

    def source() -> Iterator[np.ndarray]:
        for _ in range(steps + 1):
            time.sleep(wait)
            yield batch

    with Stream(source, one.initAnchorArrays(), prefetch=prefetch) as stream:
        one.run(stream)
        started = time.perf_counter()
        while stream.more(one):
            one.run(stream)
        return (time.perf_counter() - started) / steps


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    one = session(args.width, args.layers)
    alone = min(seconds(one, args.width, args.steps, 0.0, 0) for _ in range(3))
    table = Table("source waits [ms]", "step alone [ms]", "prefetch off [ms]", "on [ms]", "off / on")
    for share in (0.25, 0.5, 1.0, 2.0):
        found: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(args.rounds):
            for prefetch, times in found.items():
                times.append(seconds(one, args.width, args.steps, share * alone, prefetch))
        off, on = (statistics.median(times) for times in found.values())
        figures = (share * alone, alone, off, on)
        table.add_row(*(f"{1e3 * t:.2f}" for t in figures), f"{off / on:.2f}")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
