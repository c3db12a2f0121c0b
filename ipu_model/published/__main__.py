"""``python -m ipu_model.published FILE.json``: score predictions of published figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from ipu_model.calibrate import Calibration, split_by_case
from ipu_model.published import accuracy, folds, perturb, score
from ipu_model.published.explain import explain
from ipu_model.published.rows import parts
from ipu_model.published.score import Row
from ipu_model.target import get
from ipu_model.targets import FOLDER
from ipu_model.uncertainty import RESIDUALS

HEADS = ("kind", "family", "operation", "quantity", "chip", "rows", "median", "90 %", "bias")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print errors by kind, family, operation, quantity and chip, for all rows and for both halves of a split."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        data = json.loads(options.file.read_text())
    except (OSError, ValueError) as error:
        parser.error(f"{options.file}: {error}")
    figures: Any = cast("dict[str, Any]", data)["figures"] if isinstance(data, dict) else data
    if options.perturb is not None:
        return _perturb(figures, options.perturb)
    rows, unknown = score.predictable(figures)
    if options.store:
        found = score.fit_all(rows)
        Calibration(get(), found).save(FOLDER / "fitted.json", f"fitted to {len(rows)} published figures")
        print(f"stored {len(found)} constants")
        return 0
    if options.parts:
        _parts(rows)
        return 0
    if options.residuals:
        found = folds.residuals(rows)
        folds.store(RESIDUALS, found)
        print(f"stored errors of {len(found)} sorts")
    if options.page:
        try:
            accuracy.write(options.page, rows)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    if options.residuals or options.page:
        return 0
    _print_errors(rows, refit=options.refit, every_row=options.rows)
    for row, reason in unknown:
        print(f"not predicted: {row['family']}, {row['what'][:60]!r}: {reason}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ipu_model.published", description=main.__doc__)
    parser.add_argument("file", type=Path, help="rows in the form of the published table")
    parser.add_argument("--refit", action="store_true", help="fit on one half of the workloads, score both")
    parser.add_argument("--store", action="store_true", help="fit on all rows and store the constants as data")
    parser.add_argument("--residuals", action="store_true", help="store errors of unseen workloads by sort as data")
    parser.add_argument("--parts", action="store_true", help="print what goes into each row of inference and training")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--page", type=Path, help="write the table of the accuracy page anew, at the end of this file")
    perturb_help = "answer rows with other contents, so many of each form (1 unless said), and print what is wrong"
    parser.add_argument("--perturb", nargs="?", type=int, const=1, metavar="ROWS", help=perturb_help)
    return parser


def _print_errors(rows: Sequence[Row], *, refit: bool, every_row: bool) -> None:
    """Print the tables of all rows and of both halves, with stored constants or, to `refit`, with those of half A."""
    constants = score.fit_all(rows, keep=0.5) if refit else None
    train, held = split_by_case(rows)
    how = "constants fitted on half A" if refit else "stored constants"
    last = "half B, never fitted" if refit else "half B"
    for title, part in ((f"all rows, {how}", rows), ("half A", train), (last, held)):
        scored = score.errors(part, constants)
        _show(title, score.table(scored))
        if len(scored) < len(part):
            print(f"left out of {title}: {len(part) - len(scored)} rows of kinds that half A has no row of")
    for row, error in score.errors(rows, constants) if every_row else ():
        what = score.quantity(row)
        print(f"{error:+8.1%}  {row['family']:12} {what:16} {row['hardware'][:24]:24} {row['config']}")


def _parts(rows: Sequence[Row]) -> None:
    """Print predicted over published of the program alone, and its parts, to find a part that is off in many rows."""
    for row in rows:
        if row["family"] in ("inference", "training"):
            found = parts(row)
            whole = sum(found.values())
            shares = ", ".join(f"{name} {cycles / whole:.1%}" for name, cycles in found.items() if cycles)
            why = explain(row)
            off = why.value / float(row["value"]) - 1
            print(f"{off:+7.1%}  {row['what']}, {row['hardware']}: {whole:,.0f} cycles: {shares}")
            print(f"         assumed: {', '.join(why.assumed)}")


def _perturb(rows: Sequence[dict[str, Any]], of_each: int) -> int:
    answers, wrong = 0, 0
    for finding in perturb.findings(perturb.of_each_form(rows, of_each)):
        answers += 1
        if finding is not None:
            wrong += 1
            row = finding.variant.row
            print(f"{row['family']}, {finding.variant.name}: {finding.problem}: {json.dumps(row['config'])}")
    print(f"{answers} answers, {wrong} to look at")
    return 0


def _show(title: str, rows: list[tuple[tuple[str, ...], dict[str, float]]]) -> None:
    table = Table(*HEADS, title=title)
    for key, s in rows:
        table.add_row(*key, str(int(s["count"])), f"{s['median']:.1%}", f"{s['p90']:.1%}", f"{s['bias']:+.1%}")
    Console(width=130).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
