"""``compare``: a model here and in another runtime, node by node."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
from rich.table import Column, Table

from ..errors import popart_exception
from ..timings import phase
from . import feeds, files, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument(
        "--with", dest="runtime", default="onnxruntime", choices=("onnxruntime", "reference"), help="other side"
    )
    parser.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance (default 1e-3)")
    parser.add_argument("--atol", type=float, default=1e-5, help="absolute tolerance (default 1e-5)")
    parser.add_argument("--all", action="store_true", help="list every node that differs, not only the first")
    parser.add_argument(
        "--minimal", type=Path, metavar="FILE", help="where the minimal model goes (default beside the model)"
    )


def run(options: argparse.Namespace) -> int:
    """Name the first node that differs, with its error and inputs, and write a minimal model; exit status 1 if any."""
    from ..compare import compare, minimal_model
    from ..model.files.load import load

    if options.rtol < 0 or options.atol < 0:
        raise popart_exception(f"--rtol {options.rtol} and --atol {options.atol} should not be negative.")
    target = options.minimal or options.model.with_suffix(".minimal.onnx")
    with phase("load"):
        model = load(str(options.model))
    given = feeds.feeds(model.graph, options)
    files.check_writable(target)
    with phase(f"running both, {len(model.graph)} nodes"):
        found = compare(model, given, options.runtime, options.rtol, options.atol)
        first = next(found, None)
    console = shown.console()
    if first is None:
        console.print(f"every node agrees with {options.runtime}")
        return 0
    table = Table(Column("node", overflow="fold"), "operator", "output", "type", "largest error", "ulps")
    for d in chain([first], found if options.all else ()):
        table.add_row(
            d.node, d.op, d.tensor, f"{d.theirs.dtype}{list(d.theirs.shape)}", f"{d.absolute:.3g}", f"{d.ulps:.0f}"
        )
    console.print(table)
    for name, x in first.inputs.items():
        console.print(f"  input {name}: {getattr(x, 'dtype', type(x).__name__)}{list(np.shape(x))}")
        console.print(f"    {np.array2string(np.asarray(x), threshold=12, edgeitems=3)}")
    with files.whole(target) as place:
        onnx.save(minimal_model(model, first), place)
    console.print(f"minimal model: {target}")
    return 1
