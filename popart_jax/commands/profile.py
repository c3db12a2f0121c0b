"""``profile``: what the IPU model says of each node, beside the time XLA takes for it here."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..errors import popart_exception
from . import feeds, files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--target", default="mk2", help="mk1, mk2, bow or a registered target (default mk2)")
    parser.add_argument("--top", type=int, default=20, help="how many nodes to show (default 20)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the IPU model's report to this file")


def run(options: argparse.Namespace) -> int:
    """Show modelled IPU cycles and measured time of the most expensive nodes."""
    import ipu_model

    from ..model.load import load
    from ..profiling import profile_model, show

    if options.top < 1:
        raise popart_exception(f"--top {options.top}: expected at least 1.")
    try:
        ipu_model.get_target(options.target)
    except KeyError as err:
        raise popart_exception(f"--target: {err.args[0]}") from err
    model = load(options.model)
    if options.html is not None:
        files.check_writable(options.html)
    rows, report = profile_model(model, feeds.feeds(model.graph, options), target=options.target)
    console = Console()
    console.print(show(rows, options.top))
    console.print(report.summary(), markup=False, highlight=False)
    if options.html is not None:
        with files.whole(options.html) as place:
            report.save_html(place)
    return 0
