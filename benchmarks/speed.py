"""Speed against hand-written JAX and the peers that are installed: ``python -m benchmarks.speed [--only NAME]``.

Each row interleaves its engines in one process and prints medians (ms) and the ratio of ours over each other engine.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Mapping

# peers' idle threads must not spin while another engine is timed; read when the libraries are loaded
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import numpy as np
from rich.console import Console
from rich.table import Table

from . import engines, networks
from .timing import Timing, interleave, ratio
from .tiny import tiny_rows

INFERENCE = {
    "mlp": (1, 64),
    "lenet": (1, 64),
    "resnet18": (1, 8),
    "resnet50": (1,),
    "mobilenetv2": (1, 8),
    "lstm": (1, 8),
    "encoder": (1, 8),
    "bert-base": (1,),
    "gpt2-small": (1,),
}
TRAINING = {"mlp": (64, 4), "lenet": (64, 2), "resnet18": (8, 1), "lstm": (32, 2), "encoder": (8, 1)}
ENGINES = ("by hand", "onnxruntime", "torch")
NOISY = 0.3
Calls = Mapping[str, Callable[[], np.ndarray]]


def inference_row(name: str, batch: int) -> Calls:
    """Engines for one inference row."""
    network = networks.NETWORKS[name](batch)
    calls = {"ours": engines.ours_inference(network), "by hand": engines.by_hand_inference(network)}
    calls |= _peer("onnxruntime", lambda: engines.onnxruntime_inference(network))
    return calls | _peer("torch", lambda: engines.torch_inference(network))


def training_row(name: str, batch: int, steps: int) -> Calls:
    """Engines for one training row; a call makes `steps` steps."""
    make = functools.partial(networks.resnet18, training=True) if name == "resnet18" else networks.NETWORKS[name]
    network = make(batch)
    data = engines.batches(network, steps)
    calls = {"ours": engines.ours_training(network, data), "by hand": engines.by_hand_training(network, data)}
    if name == "lstm":  # the column's functional LSTM trains 80 times slower than torch.nn.LSTM: no fair figure
        return calls
    return calls | _peer("torch", lambda: engines.torch_training(network, data))


def _peer(name: str, make: Callable[[], Callable[[], np.ndarray]]) -> dict[str, Callable[[], np.ndarray]]:
    try:
        return {name: make()}
    except ImportError:
        return {}


def agree(calls: Mapping[str, Callable[[], np.ndarray]]) -> float:
    """Largest relative difference of the engines' first results from ours."""
    results = {name: np.array(call(), copy=True) for name, call in calls.items()}
    ours = results.pop("ours")
    scale = max(float(np.abs(ours).max()), 1e-6)
    return max((float(np.abs(ours - r.reshape(ours.shape)).max()) / scale for r in results.values()), default=0.0)


def show(table: Table, label: str, times: Mapping[str, Timing], difference: float) -> None:
    """Add one row to the table."""
    ours = times["ours"]
    peers = {n: f"{t.median * 1e3:.3f} (x{ratio(ours, t):.2f})" for n, t in times.items() if n != "ours"}
    noise = "noisy" if max(t.spread for t in times.values()) > NOISY else ""
    cells = [peers.get(n, "") for n in ENGINES]
    table.add_row(label, f"{ours.median * 1e3:.3f}", *cells, f"{difference:.0e}", noise)


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one network")
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds a row")
    args = parser.parse_args(argv)
    every = not (args.inference or args.training or args.tiny)
    rows: list[tuple[str, Callable[[], Calls]]] = []
    if args.inference or every:
        rows += [(f"{n} b{b}", functools.partial(inference_row, n, b)) for n, bs in INFERENCE.items() for b in bs]
    if args.training or every:
        rows += [(f"train {n} b{b} x{s}", functools.partial(training_row, n, b, s)) for n, (b, s) in TRAINING.items()]
    if args.tiny or every:
        rows += tiny_rows()
    console = Console(width=130)
    table = Table("row", "ours (ms)", *(f"{n} (ms) (ours/{n})" for n in ENGINES), "difference", "")
    for label, make in rows:
        if args.only and args.only not in label:
            continue
        calls = make()
        difference = agree(calls)
        times = interleave(calls, budget=args.budget)
        show(table, label, times, difference)
        console.print(f"{label}: x{ratio(times['ours'], times['by hand']):.2f} of the hand-written one", style="dim")
    console.print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
