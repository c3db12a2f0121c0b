"""Rows of the table, kept in a file so that they can be run in several batches."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from .checks import CHECKS


@dataclass(frozen=True)
class Row:
    """What was found of one network by one exporter.

    Attributes
    ----------
    network, exporter : str
        Which.
    opset : int or None
        The one that was asked for; None is the exporter's own choice.
    found : dict
        Each check with '' where it holds, or the reason.
    not_written : str
        Why the exporter wrote no such file.
    """

    network: str
    exporter: str
    opset: int | None
    found: dict[str, str]
    not_written: str = ""

    @property
    def title(self) -> str:
        """The row in words."""
        return f"{self.network} ({self.exporter}{'' if self.opset is None else f', opset {self.opset}'})"

    @property
    def failed(self) -> dict[str, str]:
        """Checks that do not hold, with the reason."""
        return {check: why for check, why in self.found.items() if why}

    def cells(self) -> list[str]:
        """The row of the table."""
        marks = ["-" if check not in self.found else "no" if self.found[check] else "yes" for check in CHECKS]
        return [self.network, self.exporter, "default" if self.opset is None else str(self.opset), *marks]


class Results:
    """All rows so far; those of a file are read first, and each new row is added to it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.rows = [Row(**json.loads(line)) for line in lines]

    def has(self, network: str, exporter: str, opset: int | None) -> bool:
        """Whether a row is there already."""
        return any((r.network, r.exporter, r.opset) == (network, exporter, opset) for r in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    def table(self) -> Table:
        """For a terminal."""
        table = Table(*_HEADS)
        for row in self.rows:
            table.add_row(*row.cells())
        return table

    def page(self) -> str:
        """For the documentation: a row for each network, exporter and opset, and the reason of each that fails."""
        written = [r for r in self.rows if r.found]
        lines = [_INTRODUCTION, f"{len({r.network for r in written})} networks, {len(written)} files, "]
        lines[-1] += f"{sum(not why for r in written for why in r.found.values())} checks hold, "
        lines[-1] += f"{sum(len(r.failed) for r in written)} do not.\n"
        lines += ["| " + " | ".join(_HEADS) + " |", "| --- " * len(_HEADS) + "|"]
        lines += ["| " + " | ".join(row.cells()) + " |" for row in written]
        failed = [f"- {row.title}, {check}: {why[:200]}" for row in written for check, why in row.failed.items()]
        lines += ["\n## What does not hold\n", *failed] if failed else []
        unwritten = [
            f"- {row.title}: {_COLOURS.sub('', row.not_written)[:100]}" for row in self.rows if row.not_written
        ]
        lines += ["\n## What the exporter does not write\n", *unwritten] if unwritten else []
        return "\n".join(lines) + "\n"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_HEADS = ("network", "exporter", "opset", *CHECKS)
_INTRODUCTION = """# Networks from PyTorch's exporters

Made by `python -m benchmarks.exports --page`. Each file is read by `to_jax`. Its outputs are compared with those of
ONNX Runtime, its gradient with differences; after twenty steps of Adam the loss is lower; the trained file gives the
same outputs in ONNX Runtime; and `jax.export` takes the batch as a symbol. The networks are small and untrained.
"""
