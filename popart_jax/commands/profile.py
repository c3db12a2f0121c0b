"""``profile``: what the IPU model says of each node, beside the time XLA takes for it here."""

from __future__ import annotations

import argparse

from rich.console import Console

from . import feeds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--target", default="mk2", help="mk1, mk2, bow or a registered target (default mk2)")
    parser.add_argument("--top", type=int, default=20, help="how many nodes to show (default 20)")
    parser.add_argument("--html", help="write the IPU model's report to this file")


def run(options: argparse.Namespace) -> int:
    """Show modelled IPU cycles and measured time of the most expensive nodes."""
    from ..model.load import load
    from ..profiling import profile_model, show

    model = load(options.model)
    rows, report = profile_model(model, feeds.feeds(model.graph, options), target=options.target)
    console = Console()
    console.print(show(rows, options.top))
    console.print(report.summary(), markup=False, highlight=False)
    if options.html:
        report.save_html(options.html)
    return 0
