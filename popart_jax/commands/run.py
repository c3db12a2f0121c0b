"""``run``: a model once, with its outputs shown and optionally saved."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from . import feeds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--output-dir", type=Path, help="write each output to a .npy file here")


def run(options: argparse.Namespace) -> int:
    """Run a model once and show its outputs."""
    from ..backend import prepare
    from ..model.load import load

    given = feeds.feeds(load(options.model).graph, options)
    results = prepare(str(options.model)).run(given)
    model = load(options.model)
    table = Table("output", "type", "shape", "min", "mean", "max")
    for value, result in zip(model.graph.outputs, results, strict=True):
        array = np.asarray(result)
        table.add_row(value.name, str(array.dtype), str(list(array.shape)), *_statistics(array))
        if options.output_dir is not None:
            options.output_dir.mkdir(parents=True, exist_ok=True)
            np.save(options.output_dir / f"{(value.name or 'output').replace('/', '_')}.npy", array)
    Console().print(table)
    return 0


def _statistics(array: np.ndarray) -> tuple[str, str, str]:
    if not array.size or array.dtype.kind not in "biufV":
        return "", "", ""
    numbers = array.astype(np.float64)
    return f"{numbers.min():.6g}", f"{numbers.mean():.6g}", f"{numbers.max():.6g}"
