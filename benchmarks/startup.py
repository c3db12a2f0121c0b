"""Start-up to the first result and peak memory, ours beside hand-written JAX: ``python -m benchmarks.startup``.

Each measurement is a fresh process that loads ResNet-50, compiles and runs once, with an empty and with a filled
persistent compile cache (`JAX_COMPILATION_CACHE_DIR`), the two programs in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .peak import peak_mib

CACHE_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def ours(folder: Path) -> None:
    """Load the file in an InferenceSession and run it once."""
    import popart_jax as popart

    x = np.load(folder / "x.npy")
    logits = (folder / "logits").read_text()
    flow = popart.DataFlow(1, {logits: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(str(folder / "model.onnx"), flow, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))


def by_hand(folder: Path) -> None:
    """Load the laid-out weights and run the hand-written function once."""
    import jax

    from .networks.resnet import RESNET50, forward

    x = np.load(folder / "x.npy")
    with np.load(folder / "weights.npz") as stored:
        params = {name: jax.numpy.asarray(stored[name]) for name in stored}
    options = {"xla_cpu_experimental_ynn_fusion_type": ""} if jax.default_backend() == "cpu" else None
    np.asarray(jax.jit(partial(forward, RESNET50), compiler_options=options)(params, x))


def prepare(folder: Path) -> None:
    """Write the model and the weights both programs read."""
    from . import networks

    network = networks.resnet50(1)
    (folder / "model.onnx").write_bytes(network.model)
    (folder / "logits").write_text(network.logits)
    np.save(folder / "x.npy", network.feed["x"])
    arrays: dict[str, Any] = {k: np.asarray(v) for k, v in network.lay_out(network.params).items()}
    np.savez(folder / "weights.npz", **arrays)


def measure(program: str, folder: Path, cache: Path) -> tuple[float, float]:
    """Wall time [s] and peak resident memory [MiB] of one fresh process."""
    command = [sys.executable, "-m", "benchmarks.startup", "--program", program, "--folder", str(folder)]
    environment = os.environ | CACHE_ALL | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return time.perf_counter() - started, float(done.stdout.split()[-1])


def compare(folder: Path, rounds: int) -> Table:
    """Interleave cold and warm starts of both programs."""
    table = Table("start-up, ResNet-50", "ours (s)", "by hand (s)", "ours / by hand", "ours (MiB)", "by hand (MiB)")
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for i in range(rounds):
        for program in ("ours", "by_hand"):
            cache = folder / f"cache-{program}-{i}"
            for state in ("cold", "warm"):
                results.setdefault((program, state), []).append(measure(program, folder, cache))
    for state in ("cold", "warm"):
        a, b = results["ours", state], results["by_hand", state]
        ratio = statistics.median(x[0] / y[0] for x, y in zip(a, b, strict=True))
        seconds = [f"{statistics.median(r[0] for r in side):.2f}" for side in (a, b)]
        memory = [f"{statistics.median(r[1] for r in side):.0f}" for side in (a, b)]
        table.add_row(f"{state} cache", *seconds, f"x{ratio:.2f}", *memory)
    return table


def main(argv: list[str] | None = None) -> int:
    """Compare, or be one of the measured programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=("ours", "by_hand"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    if args.program:
        {"ours": ours, "by_hand": by_hand}[args.program](args.folder)
        print(peak_mib())
        return 0
    Console().print(table(args.rounds))
    return 0


def table(rounds: int) -> Table:
    """Write the model and compare."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        return compare(Path(name), rounds)


if __name__ == "__main__":
    raise SystemExit(main())
