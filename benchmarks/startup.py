"""Start-up to the first result and peak memory, ours beside hand-written JAX: ``python -m benchmarks.startup``.

Each measurement is a fresh process that reads its files, compiles and runs once, with an empty and with a filled
persistent compile cache (`JAX_COMPILATION_CACHE_DIR`), the two programs in turn. Byte code of Python is there
beforehand, as it is of an installed package.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .startup_programs import JOBS, write
from .timing import installed_environment

CACHE_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
PROGRAMS = ("ours", "by_hand")
Sample = tuple[float, float]


def measure(job: str, program: str, folder: Path, cache: Path, clock: Callable[[], float]) -> Sample:
    """Time [s] by a clock, and peak resident memory [MiB], of one fresh process."""
    command = [sys.executable, "-m", "benchmarks.startup_programs", job, program, str(folder)]
    environment = installed_environment(folder.parent / "bytecode") | CACHE_ALL
    environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    started = clock()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return clock() - started, float(done.stdout.split()[-1])


def cpu_time() -> float:
    """CPU time [s] of all processes that have ended; under load it says more than wall time."""
    spent = os.times()
    return spent.children_user + spent.children_system


def samples(job: str, folder: Path, rounds: int, clock: Callable[[], float]) -> dict[tuple[str, str], list[Sample]]:
    """Cold and warm starts of both programs in turn, after one start of each that does not count."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for i in range(rounds + 1):
        for program in PROGRAMS:
            cache = folder / f"cache-{program}"
            shutil.rmtree(cache, ignore_errors=True)
            for state in ("cold", "warm"):
                sample = measure(job, program, folder, cache, clock)
                if i > 0:
                    found.setdefault((program, state), []).append(sample)
    return found


def add_rows(table: Table, job: str, found: dict[tuple[str, str], list[Sample]]) -> None:
    """Medians of times and memory, and the median of the ratios of neighbours."""
    for state in ("cold", "warm"):
        a, b = found["ours", state], found["by_hand", state]
        ratios = [x[0] / y[0] for x, y in zip(a, b, strict=True)]
        seconds = [f"{statistics.median(r[0] for r in side):.2f}" for side in (a, b)]
        memory = [f"{statistics.median(r[1] for r in side):.0f}" for side in (a, b)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        table.add_row(job, f"{state} cache", *seconds, f"x{statistics.median(ratios):.2f}", spread, *memory)


def table(rounds: int, only: str = "", clock: Callable[[], float] = time.perf_counter) -> Table:
    """Write the models and compare."""
    from . import networks

    columns = ("ours (s)", "by hand (s)", "ours / by hand", "from, to", "ours (MiB)", "by hand (MiB)")
    made = Table("start-up", "", *columns)
    with tempfile.TemporaryDirectory() as name:
        for job, (network, batch, _, _) in JOBS.items():
            if only not in job:
                continue
            folder = Path(name) / job.replace(" ", "-")
            folder.mkdir()
            if network:
                write(networks.NETWORKS[network](batch), folder)
            add_rows(made, job, samples(job, folder, rounds, clock))
    return made


def main(argv: list[str] | None = None) -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="jobs whose name has this in it")
    parser.add_argument("--cpu", action="store_true", help="CPU time, for a machine that is shared")
    args = parser.parse_args(argv)
    Console(width=130).print(table(args.rounds, args.only, cpu_time if args.cpu else time.perf_counter))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
