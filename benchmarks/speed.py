"""The scoreboard: ``python -m benchmarks.speed [--budget SECONDS] [--only TEXT] [--inference] [--training] ...``.

Each row interleaves its engines in one process, checks their results against each other, and prints medians (ms), the
ratio of ours over each other engine, and whether the machine was too noisy to tell. Rows are written as they come.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from . import engines, layers, loops, memory, networks, popxl_rows, quantised, real, startup, training
from .board import Board, Row, add_timing
from .tiny import tiny_rows

INFERENCE = {
    "mlp": (1, 64),
    "lenet": (1, 64),
    "resnet18": (1, 8),
    "resnet50": (1, 8),
    "mobilenetv2": (1, 8),
    "lstm": (1, 8),
    "encoder": (1, 8),
    "bert-base": (1, 8),
    "gpt2-small": (1,),
}
TRAINING = {"mlp": (64, 4), "lenet": (64, 2), "lstm": (32, 2), "encoder": (8, 1), "resnet18": (8, 1)}
ON_REQUEST = ("layers", "loops", "quantised")
"""Sections that run only when they are named."""
SECTIONS = ("inference", "real", "training", "tiny", "popxl", "startup", "memory")
PRECISIONS = ("highest", "tensorfloat32")
Calls = Mapping[str, Callable[[], np.ndarray]]
_TABLES = {"popxl": 20, "startup": 40, "memory": 90}
"""Seconds to keep for the tables at the end."""


def inference_row(name: str, batch: int) -> Calls:
    """Engines for one inference row."""
    return inference_calls(networks.NETWORKS[name](batch))


def inference_calls(network: networks.Network) -> Calls:
    """One batch by each engine there is."""
    calls = {"ours": engines.ours_inference(network), "by hand": engines.by_hand_inference(network)}
    calls |= _peer("onnxruntime", lambda: engines.onnxruntime_inference(network.model, network.feed))
    calls |= _peer("torch", lambda: engines.torch_inference(network))
    if jax.default_backend() == "gpu":
        return calls | _peer("torch.compile", lambda: engines.torch_inference(network, compiled=True))
    return calls | _peer("openvino", lambda: engines.openvino_inference(network.model, network.feed))


def training_row(name: str, batch: int, steps: int, rule: str = "sgd-m") -> Calls:
    """Engines for one training row; a call makes `steps` steps."""
    make = functools.partial(networks.resnet18, training=True) if name == "resnet18" else networks.NETWORKS[name]
    return training_calls(make(batch), steps, rule)


def training_calls(network: networks.Network, steps: int, rule: str) -> Calls:
    """Some training steps by each engine there is."""
    data = training.batches(network, steps)
    calls: dict[str, Callable[[], np.ndarray]] = {
        "ours": training.ours_training(network, data, rule),
        "by hand": training.by_hand_training(network, data, rule),
    }
    calls |= _peer("torch", lambda: training.torch_training(network, data, rule))
    if jax.default_backend() == "gpu":
        calls |= _peer("torch.compile", lambda: training.torch_training(network, data, rule, compiled=True))
    return calls


def _peer(name: str, make: Callable[[], Callable[[], np.ndarray]]) -> dict[str, Callable[[], np.ndarray]]:
    try:
        return {name: make()}
    except ImportError:
        return {}


def rows(section: str, batch: Sequence[int] = ()) -> Iterator[Row]:
    """Rows of one section, their engines not made yet; `batch` replaces the usual sizes of inference and training."""
    partial = functools.partial
    if section == "inference":
        yield from ((f"{n} b{b}", partial(inference_row, n, b)) for n, bs in INFERENCE.items() for b in batch or bs)
    elif section == "real":
        yield from real.real_rows()
    elif section == "training":
        for rule in training.RULES:
            for name, (usual, steps) in TRAINING.items():
                for b in batch or (usual,):
                    yield f"train {name} b{b} x{steps} {rule}", partial(training_row, name, b, steps, rule)
    elif section == "tiny":
        yield from tiny_rows()
        for steps in (1, 10, 100):
            yield f"train small mlp b16 x{steps}", partial(training_row, "small mlp", 16, steps)
    elif section == "popxl":
        yield from popxl_rows.rows()
    elif section == "layers":
        yield from layers.rows()
    elif section == "loops":
        yield from loops.rows()
    elif section == "quantised":
        yield from quantised.rows()


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose label holds this text")
    parser.add_argument("--batch", type=int, nargs="+", default=(), help="sizes in place of the usual ones")
    add_timing(parser, 2.0)
    parser.add_argument("--output", type=Path, help="also append the rows to this Markdown file")
    parser.add_argument("--precision", choices=PRECISIONS, help="of all engines' float32 products on a GPU")
    parser.add_argument("--minutes", type=float, default=11.5, help="time for everything; rows share it")
    for section in (*SECTIONS, *ON_REQUEST):
        parser.add_argument(f"--{section}", action="store_true")
    args = parser.parse_args(argv)
    if args.precision:  # which starts JAX, and on a CPU a session should: see `_compat.jax.computes_in_callers_thread`
        engines.multiply_in(args.precision)
    chosen = [s for s in (*SECTIONS, *ON_REQUEST) if getattr(args, s)] or SECTIONS
    kept = sum(_TABLES[s] for s in chosen if s in _TABLES)
    board = Board(args.budget, args.priority, args.output, max(60 * args.minutes - kept, 0.5 * 60 * args.minutes))
    wanted = [row for section in chosen for row in rows(section, args.batch) if args.only in row[0]]
    for i, (label, make) in enumerate(wanted):
        board.measure(label, make, len(wanted) - i)
    if "popxl" in chosen and args.only in "popxl transformer":
        board.show_table(popxl_rows.build_table())
    if "startup" in chosen and args.only in "startup":
        board.show_table(startup.table(rounds=2))
    if "memory" in chosen and args.only in "memory":
        board.show_table(memory.table())
    board.verdict()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
