"""How times grow with the size: ``python -m benchmarks.slopes [--only TEXT] [--budget SECONDS] [--priority N]``.

Each table follows one size of a network, and shows the time of ours, and the ratio of ours over each other engine. Its
last row has the slopes, exponents `p` of ``time = c * size**p``: of the fit to all sizes, and in brackets the
largest between neighbours. Runs are timed as in `benchmarks.speed`; sessions made and prepared in CPU seconds, once,
beside XLA's compilation of the hand-written program; graphs from the file to the trace, in CPU seconds.

Transformers by hand have at most 12 layers: XLA takes 26 s to compile 24, and had not done 48 and 96 after ten minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from . import board, networks, preparing, scale, speed
from .networks import transformer
from .timing import interleave

BATCH = (1, 4, 16, 64, 256)
SEQUENCE = (64, 128, 256, 512, 1024, 2048)
LAYERS = (1, 3, 12, 48, 96)
NODES = (1_000, 5_000, 25_000, 100_000)
NARROW = transformer.Shape("narrow", 64, 128, 4, 512, 1)
RULE = "sgd-m"
BY_HAND = 12
"""Layers that are compiled as written by hand too."""
Seconds = Mapping[str, float]


@dataclass(frozen=True)
class Axis:
    """One table: `measure` gives the seconds of each engine at a size, ours first."""

    name: str
    sizes: tuple[int, ...]
    measure: Callable[[int], Seconds]


def axes(budget: float, priority: int) -> list[Axis]:
    """All tables; runs get `budget` seconds a size, and are timed at a real-time priority."""

    def runs(
        name: str, sizes: tuple[int, ...], make: Callable[[int], networks.Network], by_hand: int | None = None
    ) -> list[Axis]:
        def timed(size: int, calls: speed.Calls) -> Seconds:
            most = size if by_hand is None else by_hand
            kept = {name: call for name, call in calls.items() if name != "by hand" or size <= most}
            return times(kept, budget, priority)

        def infer(size: int) -> Seconds:
            return timed(size, speed.inference_calls(make(size)))

        def train(size: int) -> Seconds:
            return timed(size, speed.training_calls(make(size), 1, RULE))

        return [Axis(name, sizes, infer), Axis(f"training, {name}", sizes, train)]

    def tokens(count: int) -> networks.Network:
        return transformer.transformer(dataclasses.replace(transformer.ENCODER, tokens=count), 1)

    return [
        *(axis for name in ("mlp", "lenet", "lstm", "encoder") for axis in runs(f"batch of {name}", BATCH, _by(name))),
        runs("batch of resnet18", BATCH, _by("resnet18"))[0],  # its training form is another network
        *runs("sequence of encoder", SEQUENCE, tokens),
        *runs("sequence of lstm", SEQUENCE, partial(networks.lstm_classifier, 1)),
        *runs("layers of a transformer", LAYERS, layers, BY_HAND),
        Axis("layers of a transformer, prepared", LAYERS, partial(prepared, preparing.inference)),
        Axis("training, layers of a transformer, prepared", LAYERS, partial(prepared, preparing.training)),
        Axis("nodes of a graph", NODES, lambda count: {"ours": sum(scale.time_graph(count))}),
    ]


def _by(name: str) -> Callable[[int], networks.Network]:
    return networks.NETWORKS[name]


def layers(count: int) -> networks.Network:
    """A transformer with some blocks, narrow enough for many of them."""
    return transformer.transformer(dataclasses.replace(NARROW, blocks=count), 1)


def times(calls: speed.Calls, budget: float, priority: int) -> Seconds:
    """Medians, after a check that the engines agree.

    Raises
    ------
    ValueError
        If a result is more than 1 % of the largest number off.
    """
    difference = board.agree(calls)
    if not difference < 1e-2:
        raise ValueError(f"the engines do not agree: a difference of {difference:.0e} of the largest number")
    with board.quiet(priority):
        return {name: timing.median for name, timing in interleave(calls, budget=budget, least=3).items()}


def prepared(kind: Callable[..., Mapping[str, float]], count: int) -> Seconds:
    """CPU seconds to make and prepare a session, and of XLA's compilation by hand."""
    network = layers(count)
    engines = ("ours", "by hand") if count <= BY_HAND else ("ours",)
    return {name: kind(network, hand_written=name != "ours")["total"] for name in engines}


def slopes(points: Mapping[int, float]) -> tuple[float, float]:
    """Exponents of a size in its time [s]: of the fit to all, and the largest between neighbours."""
    sizes, seconds = np.log(list(points)), np.log(list(points.values()))
    fitted = np.polyfit(sizes, seconds, 1)[0]
    return float(fitted), float(np.max(np.diff(seconds) / np.diff(sizes)))


def show(axis: Axis, console: Console) -> None:
    """Print one table, rows as they come."""
    table, found = Table(title=axis.name), dict[int, Seconds]()
    with Live(table, console=console):
        for size in axis.sizes:
            found[size] = row = axis.measure(size)
            ours, names = row["ours"], list(next(iter(found.values())))
            if not table.columns:
                for title in ("size", "ours (ms)", *(f"over {name}" for name in names[1:])):
                    table.add_column(title)
            ratios = (f"x{ours / row[name]:.2f}" if name in row else "" for name in names[1:])
            table.add_row(f"{size:,}", f"{ours * 1e3:.3g}", *ratios)
        points = ({size: row[name] for size, row in found.items() if name in row} for name in found[axis.sizes[0]])
        table.add_section()
        table.add_row("slope", *("{:.2f} ({:.2f})".format(*slopes(p)) for p in points))
    console.print()


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="tables whose title has this in it")
    board.add_timing(parser, 1.0)
    args = parser.parse_args(argv)
    for axis in axes(args.budget, args.priority):
        if args.only in axis.name:
            show(axis, Console(width=120))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
