"""Rows of the board in this checkout over the same rows in another one: ``python -m benchmarks.against FOLDER``.

FOLDER holds another state of the project, for instance by ``git worktree add FOLDER REVISION``. Both states prepare a
row in a process each, and then take turns, so that whatever else the machine does slows both.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from . import speed
from .board import NOISY, add_budget
from .timing import Timing, ratio

_LEAST = 5
_BURST = 0.05
"""Time of one measurement [s]; a longer call is measured alone."""

_WORKER = """
import functools, sys, time
from benchmarks import engines, networks, training
section, name, batch, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if section == "inference":
    call = engines.ours_inference(networks.NETWORKS[name](batch))
else:
    make = functools.partial(networks.resnet18, training=True) if name == "resnet18" else networks.NETWORKS[name]
    network = make(batch)
    call = training.ours_training(network, training.batches(network, steps), "sgd-m")
call()
for line in sys.stdin:
    started = time.perf_counter()
    for _ in range(int(line)):
        call()
    print((time.perf_counter() - started) / int(line), flush=True)
"""

Words = tuple[str, str, int, int]


class Prepared:
    """A process that has prepared a row in a checkout, and measures it when it is asked to."""

    def __init__(self, folder: Path, words: Words) -> None:
        environment = os.environ | {"PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *map(str, words)], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def seconds(self, calls: int) -> float:
        """Time of a call, the mean of some.

        Raises
        ------
        RuntimeError
            The process has ended, for instance because its state of the project has no such row.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self._process.args!r} ended; its error stands above")
        return float(line)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def rows() -> Iterator[Words]:
    """Section, network, batch and steps of each row."""
    yield from (("inference", name, batch, 1) for name, batches in speed.INFERENCE.items() for batch in batches)
    yield from (("training", name, batch, steps) for name, (batch, steps) in speed.TRAINING.items())


def compare(here: Path, there: Path, words: Words, budget: float) -> tuple[Timing, Timing]:
    """Times of a row in both checkouts, one of each a round."""
    with closing(Prepared(here, words)) as ours, closing(Prepared(there, words)) as other:
        both = [ours, other]
        calls = max(1, round(_BURST / max(p.seconds(3) for p in both)))
        times: dict[Prepared, list[float]] = {p: [] for p in both}
        rng, started = random.Random(0), time.perf_counter()
        while len(times[ours]) < _LEAST or time.perf_counter() - started < budget:
            for process in rng.sample(both, 2):
                times[process].append(process.seconds(calls))
    return Timing(tuple(times[ours])), Timing(tuple(times[other]))


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="another checkout")
    parser.add_argument("--only", default="", help="rows whose words hold this text")
    add_budget(parser, 6.0)
    options = parser.parse_args()
    here, there = Path(__file__).parents[1], options.folder.resolve()
    for words in rows():
        label = "{} {} b{}".format(*words)
        if options.only in label:
            ours, other = compare(here, there, words, options.budget)
            noisy = " (noisy)" if max(ours.spread, other.spread) > NOISY else ""
            times = f"{ours.median * 1e3:9.3f} ms, there {other.median * 1e3:9.3f} ms"
            print(f"{label:28} {times}, ratio {ratio(ours, other):.3f}{noisy}", flush=True)


if __name__ == "__main__":
    main()
