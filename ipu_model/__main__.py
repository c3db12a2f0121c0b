"""Renders stored reports: ``python -m ipu_model report.json --summary --html page.html --compare earlier.json``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ipu_model.report.report import Report


def main(argv: Sequence[str] | None = None) -> int:
    """Read a report document and write the renderings that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m ipu_model", description=__doc__)
    parser.add_argument("report", help="document written by Report.save")
    parser.add_argument("--summary", action="store_true", help="print the summary (the default without other options)")
    parser.add_argument("--steps", action="store_true", help="print the summary with every step of the program")
    parser.add_argument("--html", help="write the page to this file")
    parser.add_argument("--compare", help="earlier document, to show the differences from: on the page, or as text")
    parser.add_argument("--trace", help="write a Chrome/Perfetto trace to this file")
    options = parser.parse_args(argv)
    try:
        report = _read(options.report)
        earlier = _read(options.compare) if options.compare else None
        if options.html:
            report.save_html(options.html, earlier)
        if options.trace:
            report.save_trace(options.trace)
    except (OSError, ValueError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    if earlier and not options.html:
        print(report.compare(earlier))
    if options.summary or options.steps or not (options.html or options.trace or options.compare):
        print(report.summary(show_execution_steps=options.steps))
    return 0


def _read(path: str) -> Report:
    try:
        return Report.from_json(Path(path).read_text())
    except (KeyError, TypeError, ValueError) as err:
        raise ValueError(f"{path!r} is no report of ipu_model: {err}") from err


if __name__ == "__main__":
    sys.exit(main())
