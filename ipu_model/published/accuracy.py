"""The table of the accuracy page: errors by sort of figure, with constants that saw more or less of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ipu_model.calibrate import split_by_case, summary
from ipu_model.published.folds import unseen
from ipu_model.published.score import Row, errors, fit_all, quantity

HEADS = ("kind", "family", "operation", "quantity", "rows", "nothing fitted", "all rows", "half B", "parts")
START = "## Table\n"
ABOUT = """
Each cell: median and 90th percentile of the absolute error in percent, then its rows where those are fewer than all.
"Nothing fitted" has starting values, "all rows" the stored constants, "half B" those that a fit on half A found;
"parts" is from least to greatest over {seeds} ways of dealing workloads to {folds} parts, each predicted by a fit of
the others. A row is left out where the fit had no row of its kind and the constant no starting value. Written by
`python -m ipu_model.published FILE.json --page docs/ipu_model_accuracy.md`.
"""
Scored = Iterable[tuple[Row, float]]
Key = tuple[str, str, str, str]


def write(page: Path, rows: Sequence[Row], folds: int = 5, seeds: int = 3) -> None:
    """Write the table of the page anew: what stands behind its heading ``## Table``."""
    text, found, _ = page.read_text().partition(START)
    if not found:
        raise ValueError(f"{page} has no line {START.strip()!r}, behind which the table would stand")
    train, held = split_by_case(rows)
    parts = [unseen(rows, folds, seed) for seed in range(seeds)]
    once = [errors(rows, {}), errors(rows), errors(held, fit_all(train))]
    columns = [by_sort(scored) for scored in (*once, *parts)]
    lines = [HEADS, ("---",) * len(HEADS)]
    for key, stored in columns[1].items():
        cells = [_cell([column[key]] if key in column else [], len(stored)) for column in columns[:3]]
        cells.append(_cell([column[key] for column in columns[3:] if key in column], len(stored)))
        lines.append((*key, str(len(stored)), *cells))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    page.write_text(text + START + ABOUT.format(folds=folds, seeds=seeds) + "\n" + table)


def by_sort(scored: Scored) -> dict[Key, list[float]]:
    """Errors by kind, family, operation and quantity, and of all rows of a kind and of a family."""
    cells: dict[Key, list[float]] = defaultdict(list)
    for row, error in scored:
        kind = "estimate" if row["kind"] == "ipu_model_estimate" else "measured"
        family, what = str(row["family"]), quantity(row)
        cells[kind, "all", "", what if kind == "estimate" else "all"].append(error)
        cells[kind, family, "", what].append(error)
        if (op := str(row["config"].get("op", family))) != family:
            cells[kind, family, op, what].append(error)
    return {key: found for key, found in sorted(cells.items()) if not _repeats(key, cells)}


def _repeats(key: Key, cells: dict[Key, list[float]]) -> bool:
    """Whether an operation's line would say what its family's says."""
    kind, family, op, what = key
    return bool(op) and len(cells[key]) == len(cells[kind, family, "", what])


def _cell(found: Sequence[Sequence[float]], rows: int) -> str:
    if not found:
        return "-"
    sums = [summary(values) for values in found]
    text = " / ".join(_between([s[name] for s in sums]) for name in ("median", "p90"))
    fewest = min(len(values) for values in found)
    return text if fewest == rows else f"{text} ({fewest})"


def _between(values: Sequence[float]) -> str:
    least, most = (f"{100 * value:.1f}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"
