"""The command of a table whose figures come from programs on several devices of this process."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

Figures = Mapping[str, Any]


def command(
    argv: list[str] | None,
    about: str | None,
    devices: int,
    cases: Collection[str],
    measure: Callable[[int, Collection[str]], Mapping[str, Figures]],
    columns: Sequence[str],
    row: Callable[[Figures], Sequence[str]],
) -> int:
    """Print the table of all cases or of some, or the figures as JSON; `row` makes the columns behind a case's name."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--only", nargs="+", choices=list(cases), metavar="CASE", help="one or more of its cases")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    jax.config.update("jax_num_cpu_devices", devices)
    found = measure(args.width, args.only or cases)
    if args.json:
        print(json.dumps(found))
        return 0
    table = Table(*columns)
    for name, one in found.items():
        table.add_row(name, *row(one))
    Console(width=110).print(table)
    return 0
