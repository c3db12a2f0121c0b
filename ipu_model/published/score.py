"""Scoring of predictions, and the order in which families are fitted."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ipu_model.calibrate import calibrate, summary
from ipu_model.fitted import starting_constants
from ipu_model.published.rows import group_of, model, quantity, target_of
from ipu_model.target import Target

Row = Mapping[str, Any]
# Rows that are fitted together, and the constants that they may move. Later groups use what earlier ones found.
GROUPS: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = (
    (frozenset({"conv", "fc", "gemm", "oct_conv"}), ("conv.", "fc.", "gemm.", "oct.")),
    (frozenset({"lstm", "gru"}), ("conv.lstm", "conv.gru", "rnn.")),
    (frozenset({"matrix_solver"}), ("solver.",)),
    (frozenset({"memory_bound", "exchange", "measured gemm", "max_problem_size"}), ("stencil.", "kernel.", "memory.")),
    (frozenset({"inference"}), ("inference.",)),
    (frozenset({"latency"}), ("latency.",)),
    (frozenset({"training"}), ("training.",)),
)


def predictable(rows: Iterable[Row]) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Rows with a number that a formula exists for, and the others with the reason."""
    good: list[Row] = []
    bad: list[tuple[Row, str]] = []
    for row in rows:
        if not isinstance(row.get("value"), int | float):
            bad.append((row, f"its value is not a number: {row.get('value')!r}"))
            continue
        try:
            model(row)
        except ValueError as error:
            bad.append((row, str(error)))
        else:
            good.append(row)
    return good, bad


def fit_all(rows: Sequence[Row], keep: float = 1.0) -> dict[str, float]:
    """Constants of every family, group by group, from the share `keep` of the workloads."""
    found: dict[str, float] = {}
    for members, names in GROUPS:
        chosen = [row for row in rows if group_of(row) in members]
        if chosen:
            base = {**starting_constants(), **found}
            fit = calibrate(chosen, functools.partial(_chip, base), names=names, keep=keep)
            found.update(fit.constants)
    return found


def _chip(constants: Mapping[str, float], row: Row) -> Target:
    """The chip of a row with nothing fitted but `constants`."""
    return dataclasses.replace(target_of(row), fitted=dict(constants))


def errors(rows: Iterable[Row], constants: Mapping[str, float] | None = None) -> list[tuple[Row, float]]:
    """Relative error of each row, with the stored constants, which were fitted to all rows, or those of another fit.

    Constants that these lack keep their starting value; rows that need one without a starting value are left out.
    """
    known = None if constants is None else {**starting_constants(), **constants}
    result: list[tuple[Row, float]] = []
    for row in rows:
        target = target_of(row) if known is None else _chip(known, row)
        formula = model(row, target)
        if known is None or formula.constants() <= known.keys():
            result.append((row, float(formula(target)) / float(row["value"]) - 1))
    return result


def table(scored: Iterable[tuple[Row, float]]) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    """Errors by kind, family, operation, quantity and hardware, with sums over each."""
    cells: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row, error in scored:
        kind = "estimate" if row["kind"] == "ipu_model_estimate" else "measured"
        chip = target_of(row).name
        op = row["config"].get("op", "")
        cells[kind, "all", "", quantity(row) if kind == "estimate" else "all", "all"].append(error)
        cells[kind, row["family"], "", quantity(row), "all"].append(error)
        cells[kind, row["family"], "", quantity(row), chip].append(error)
        if op and op != row["family"]:
            cells[kind, row["family"], op, quantity(row), "all"].append(error)
    return [(key, summary(values)) for key, values in sorted(cells.items())]
