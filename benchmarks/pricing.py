"""CPU seconds that the IPU model takes to price a program, each in a fresh process: ``python -m benchmarks.pricing``.

A second run in one process finds its plans again; what a user waits for is the first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from ipu_model import Report, profile, target
from ipu_model.published.catalogue import network
from ipu_model.published.workload import System, training_cycles, training_program

NODES = 10_000


def training_of(name: str, batch: int) -> float:
    """CPU seconds to trace and price a training step on one IPU."""
    net, system = network(name, batch, {}), System()
    start = time.process_time()
    training_program(net, system)
    training_cycles(net, target.get("mk2"), system)
    return time.process_time() - start


def nodes() -> float:
    """CPU seconds to profile a chain of small nodes, in scopes two deep."""

    def chain(x: jax.Array) -> jax.Array:
        for k in range(NODES // 2):
            with jax.named_scope(f"block{k // 100}/node{k}"):
                x = jnp.tanh(x) + 1.0
        return x

    start = time.process_time()
    report: Report = profile(chain, jnp.ones(64))
    assert len(report.steps) == NODES
    return time.process_time() - start


ROWS: dict[str, tuple[float, Callable[[], float]]] = {  # target in CPU seconds, and the measured function
    "ResNet-50 training step": (2.0, lambda: training_of("resnet-50", 16)),
    "BERT-Base training step": (1.0, lambda: training_of("bert base", 2)),
    "10,000 nodes": (5.0, nodes),
}


def main() -> None:
    """Time every row in a process of its own; in one that names a row, time that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", choices=ROWS, help="the only row; all where none is named")
    row = parser.parse_args().row
    if row is not None:
        print(f"{ROWS[row][1]():.2f}")
        return
    for name, (goal, _) in ROWS.items():
        done = subprocess.run([sys.executable, "-m", "benchmarks.pricing", name], capture_output=True, text=True)
        print(f"{name:26} {done.stdout.strip() or done.stderr[-300:]} s of CPU, goal {goal:g} s")


if __name__ == "__main__":
    main()
