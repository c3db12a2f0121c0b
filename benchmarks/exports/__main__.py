"""The table: networks through both exporters, and what holds of each file; exit status 1 if anything does not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from . import detection, hugging_face, more, other, sequence, timm_models, vision
from .checks import CHECKS
from .network import Network
from .results import Results, Row
from .row import found_of

NETWORKS = tuple(
    n for room in (vision, detection, sequence, more, other, hugging_face, timm_models) for n in room.NETWORKS
)
EXPORTERS = ("dynamo", "older")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows, print what fails at once and the table at the end."""
    parser = argparse.ArgumentParser("python -m benchmarks.exports", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NETWORK", help="part of a network's name")
    parser.add_argument("--exporter", choices=EXPORTERS, help="one of the two (default both)")
    parser.add_argument(
        "--opset", type=int, action="append", metavar="N", help="write this opset (default: the exporter's own)"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="add rows to this file of JSON lines; rows in it are not run again"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table as a page in Markdown")
    options = parser.parse_args(arguments)
    results = Results(options.results)
    for network, exporter, opset in _rows(options):
        if results.has(network.name, exporter, opset):
            continue
        row = Row(network.name, exporter, opset, *found_of(network, dynamo=exporter == "dynamo", opset=opset))
        results.add(row)
        print(f"{row.title}: {'; '.join(row.failed) or row.not_written or 'all hold'}", flush=True)
        for check, why in row.failed.items():
            print(f"  {check}: {why}", flush=True)
    console = Console()
    console.print(results.table())
    for row in results.rows:
        for check, why in row.failed.items():
            console.print(f"[bold]{escape(row.title)}[/] {check}: {escape(why)}")
    if options.page:
        options.page.write_text(results.page())
    held = sum(not why for row in results.rows for why in row.found.values())
    failed = sum(len(row.failed) for row in results.rows)
    print(f"{held} checks hold, {failed} do not; {len(CHECKS)} for each file")
    return 1 if failed or not held else 0


def _rows(options: argparse.Namespace) -> Iterator[tuple[Network, str, int | None]]:
    for network in NETWORKS:
        if options.only and not any(part in network.name for part in options.only):
            continue
        for exporter in network.exporters:
            if options.exporter in (None, exporter):
                yield from ((network, exporter, opset) for opset in options.opset or [None])


if __name__ == "__main__":
    raise SystemExit(main())
