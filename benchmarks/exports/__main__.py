"""The table: networks through both exporters, and what holds of each file; exit status 1 if anything does not."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import detection, hugging_face, more, other, sequence, vision
from .checks import CHECKS, Exported
from .network import Network

NETWORKS = tuple(n for room in (vision, detection, sequence, more, other, hugging_face) for n in room.NETWORKS)
EXPORTERS = {"dynamo": True, "older": False}


def exported(network: Network, dynamo: bool, folder: Path) -> Exported:
    """The network's file in a folder, with its inputs; what the exporter prints is dropped."""
    path = folder / f"{network.name.replace(' ', '_').replace(',', '')}.onnx"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        network.export(path, dynamo=dynamo)
    inputs = {f"x{i}": x.numpy() for i, x in enumerate(network.inputs())}
    batched = network.is_batched() if network.grows else ()
    return Exported(path, inputs, tuple(n for n, b in zip(inputs, batched, strict=False) if b))


def row(network: Network, dynamo: bool) -> Iterator[tuple[str, str]]:
    """Each check with '' where it holds, or the reason."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            case = exported(network, dynamo, Path(folder))
        except Exception as err:  # whatever the exporter raises
            yield "export", _line(err)
            return
        for name, check in CHECKS.items():
            try:
                check(case)
            except Exception as err:  # any failure is a result of the table
                yield name, _line(err)
            else:
                yield name, ""


def _line(err: Exception) -> str:
    return f"{type(err).__name__}: {' '.join(str(err).split())}"[:600]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, then what failed."""
    parser = argparse.ArgumentParser("python -m benchmarks.exports", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NETWORK", help="part of a network's name")
    parser.add_argument("--exporter", choices=EXPORTERS, help="one of the two (default both)")
    options = parser.parse_args(arguments)
    console, failed, held = Console(), [], 0
    table = Table("network", "exporter", *CHECKS)
    for network in NETWORKS:
        if options.only and not any(part in network.name for part in options.only):
            continue
        for exporter in network.exporters:
            if options.exporter not in (None, exporter):
                continue
            found = dict(row(network, EXPORTERS[exporter]))
            wrong = {check: why for check, why in found.items() if why}
            failed += [(network.name, exporter, check, why) for check, why in wrong.items()]
            held += len(found) - len(wrong)
            table.add_row(network.name, exporter, *(_shown(found, check) for check in CHECKS))
            print(f"{network.name} ({exporter}): {'; '.join(wrong) or 'all hold'}", flush=True)
    console.print(table)
    for name, exporter, check, why in failed:
        console.print(f"[bold]{escape(name)}[/] ({exporter}) {check}: {escape(why)}")
    print(f"{held} checks hold, {len(failed)} do not")
    return 1 if failed or not held else 0


def _shown(found: dict[str, str], check: str) -> str:
    return "-" if check not in found else "no" if found[check] else "yes"


if __name__ == "__main__":
    raise SystemExit(main())
