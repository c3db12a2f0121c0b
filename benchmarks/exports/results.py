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
    """Results of the checks of one network exported by one exporter.

    Attributes
    ----------
    network, exporter : str
        Which.
    opset : int or None
        The requested opset; None for the exporter's default.
    found : dict
        By check: '' where it passes, or the reason of its failure.
    not_written : str
        Why the exporter wrote no file; empty if it did.
    """

    network: str
    exporter: str
    opset: int | None
    found: dict[str, str]
    not_written: str = ""

    @property
    def title(self) -> str:
        """Title of the row: network, exporter and opset."""
        return f"{self.network} ({self.exporter}{'' if self.opset is None else f', opset {self.opset}'})"

    @property
    def failed(self) -> dict[str, str]:
        """Checks that do not hold, with the reason."""
        return {check: why for check, why in self.found.items() if why}

    def cells(self) -> list[str]:
        """The row of the table."""
        marks = ["-" if check not in self.found else "no" if self.found[check] else "yes" for check in CHECKS]
        return [self.network, self.exporter, self.opset_cell, *marks]

    @property
    def opset_cell(self) -> str:
        """The opset that was asked for."""
        return "default" if self.opset is None else str(self.opset)


class Results:
    """All rows so far; those of a file are read first, and each new row is added to it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.rows = [Row(**json.loads(line)) for line in lines]

    def has(self, network: str, exporter: str, opset: int | None) -> bool:
        """Whether these results exist already."""
        return any((r.network, r.exporter, r.opset) == (network, exporter, opset) for r in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    def table(self) -> Table:
        """The results as a table for a terminal."""
        table = Table(*_HEADS)
        for row in self.rows:
            table.add_row(*row.cells())
        return table

    def page(self) -> str:
        """The results for the documentation: a row for each file of a default opset, a sum for each other opset."""
        written = [r for r in self.rows if r.found]
        table, others = ([r for r in written if (r.opset is None) is own] for own in (True, False))
        lines = [_INTRODUCTION, f"{len({r.network for r in table})} networks, {len(table)} files, {_held(table)}.\n"]
        lines += ["| " + " | ".join(_HEADS) + " |", "| --- " * len(_HEADS) + "|"]
        lines += ["| " + " | ".join(row.cells()) + " |" for row in table]
        if others:
            lines += ["\n## Other opsets\n", f"{len({r.network for r in others})} of the networks at other opsets.\n"]
            lines += ["| exporter | opset | files | checks |", "| --- | --- | --- | --- |"]
            asked = sorted({(r.exporter, r.opset) for r in others}, key=str)
            groups = [(key, [r for r in others if (r.exporter, r.opset) == key]) for key in asked]
            lines += [f"| {e} | {opset} | {len(rows)} | {_held(rows)} |" for (e, opset), rows in groups]
        failed = [f"- {row.title}, {check}: {why[:200]}" for row in written for check, why in row.failed.items()]
        lines += ["\n## What does not hold\n", *failed] if failed else []
        unwritten: dict[str, list[str]] = {}
        for row in self.rows:
            if row.not_written:
                why = _COLOURS.sub("", row.not_written)[:100]
                unwritten.setdefault(f"{row.network} ({row.exporter}, {{}}): {why}", []).append(row.opset_cell)
        shown = [f"- {text.format('opset ' + ', '.join(opsets))}" for text, opsets in unwritten.items()]
        lines += ["\n## What the exporter does not write\n", *shown] if shown else []
        return "\n".join(lines) + "\n"


def _held(rows: list[Row]) -> str:
    held = sum(not why for row in rows for why in row.found.values())
    return f"{held} checks hold, {sum(len(row.failed) for row in rows)} do not"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_HEADS = ("network", "exporter", "opset", *CHECKS)
_INTRODUCTION = """# Networks from PyTorch's exporters

Made by `python -m benchmarks.exports --page docs/exports.md`, with `--opset N` for other opsets. Each file is read by
`to_jax`. Its outputs are compared with those of ONNX Runtime, its gradient with differences; after twenty steps of Adam
the loss is lower; the trained file gives the same outputs in ONNX Runtime; and `jax.export` takes the batch as a
symbol. The networks are small and untrained.
"""
