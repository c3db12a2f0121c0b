"""``profile``: what the IPU model says of each node, beside the time XLA takes for it here."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipu_model

from ..errors import popart_exception
from . import feeds, files, shown

if TYPE_CHECKING:
    from ..profiling import Row


OWN_BAR = True
"""The command shows its own progress, so the caller shows none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--target", default="mk2", help="mk1, mk2, bow or a registered target (default mk2)")
    parser.add_argument("--top", type=int, default=20, help="how many nodes to show (default 20)")
    parser.add_argument("--model-only", action="store_true", help="only the IPU model: nothing is run or timed here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the IPU model's report to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write cycles and times of every node to this file")


def run(options: argparse.Namespace) -> int:
    """Show modelled IPU cycles and measured time of the most expensive nodes."""
    from ..model.files.load import load
    from ..profiling import measure_whole, profile_model, show

    if options.top < 1:
        raise popart_exception(f"--top {options.top}: expected at least 1.")
    try:
        ipu_model.get_target(options.target)
    except KeyError as err:
        raise popart_exception(f"--target: {err.args[0]}") from err
    model = load(options.model)
    for path in (options.html, options.json):
        if path is not None:
            files.check_writable(path)
    inputs = feeds.feeds(model.graph, options)
    rows, report = profile_model(model, inputs, target=options.target, measured=not options.model_only)
    whole = None if options.model_only else measure_whole(model, inputs)
    console = shown.console()
    console.print(show(rows, options.top, whole))
    console.print(report.summary(), soft_wrap=True)
    if options.html is not None:
        with files.whole(options.html) as place:
            report.save_html(place)
    if options.json is not None:
        with files.whole(options.json) as place:
            place.write_text(json.dumps(_document(rows, report, whole), indent=1))
    return 0


def _document(rows: list[Row], report: ipu_model.Report, whole_us: float | None) -> dict[str, Any]:
    """Cycles and microseconds of every node, modelled and measured, and those of the whole."""
    return {
        "target": report.target["name"],
        "cycles": report.total_cycles,
        "modelled_us": report.schedule.seconds * 1e6,
        "measured_us": whole_us,
        "fits": report.fits,
        "nodes": [dataclasses.asdict(row) for row in rows],
    }
