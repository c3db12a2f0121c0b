"""Numbers in several processes beside those of one: ``python -m benchmarks.processes.agreement``.

Each layout of processes and devices runs `cases`, twice; one process with one device that holds as many replicas is
what they are compared with.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from .cases import CASES
from .parts import OWN, Arrays

_LIMIT = 1e-6


def launch(*words: object, module: str = "popart_jax", timeout: int = 600) -> None:
    """Run ``launch`` or ``poprun`` with CPU devices.

    Raises
    ------
    RuntimeError
        It failed; the text is its standard error.
    """
    command = [sys.executable, "-m", module, *map(str, words)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-4000:]}")


def results(processes: int, devices: int, replicas: int, *, poprun: bool = False) -> Arrays:
    """Joined results of all processes of a layout; with `poprun` that command starts them, a device for each replica.

    Raises
    ------
    ValueError
        Arrays that should be the same in all processes differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = ("-m", f"{__package__}.cases", folder)
        if poprun:
            layout = ("--num-replicas", replicas, "--num-instances", processes, "python3")
            launch(*layout, *program, module="popart_jax.launching.poprun")
        else:
            launch("launch", "-n", processes, "--devices", devices, "--replicas", replicas, *program)
        return together([dict(np.load(Path(folder) / f"{i}.npz")) for i in range(processes)])


def together(parts: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
    """Join arrays of replicas over the processes; all other arrays must be bitwise equal in all processes."""
    found: Arrays = {}
    for name in parts[0]:
        if f": {OWN}" in name:
            found[name] = np.concatenate([p[name] for p in parts])
        elif any(p[name].tobytes() != parts[0][name].tobytes() for p in parts):
            raise ValueError(f"{name} differs between processes")
        else:
            found[name] = parts[0][name]
    return found


@cache
def reference(replicas: int) -> Arrays:
    """Results with all replicas on one device."""
    return results(1, 1, replicas)


def difference(case: str, one: Arrays, other: Arrays) -> float:
    """Largest difference of any number of a case, as part of the largest number of its array (of 1 if that is less).

    Raises
    ------
    ValueError
        They do not hold the same arrays.
    """
    if one.keys() != other.keys() or any(one[n].shape != other[n].shape for n in one):
        raise ValueError("the two runs made different arrays")
    worst = 0.0
    for name in one:
        if name.startswith(f"{case}:") and one[name].size:
            a, b = (x[name].astype(np.float64) for x in (one, other))
            worst = max(worst, float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(a)))))
    return worst


def main(argv: list[str] | None = None) -> int:
    """Print the table; the status is 1 if a layout disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4])
    args = parser.parse_args(argv)
    table = Table("processes", "devices of each", *CASES, "two runs")
    good = True
    for processes in args.processes:
        for devices in args.devices:
            count = processes * devices
            first, second = (results(processes, devices, count) for _ in range(2))
            gaps = [difference(case, first, reference(count)) for case in CASES]
            same = all(first[n].tobytes() == second[n].tobytes() for n in first)
            good &= same and max(gaps) <= _LIMIT
            row = (f"{gap:.1e}" if gap else "0" for gap in gaps)
            table.add_row(str(processes), str(devices), *row, "equal" if same else "differ")
    Console(width=140).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
