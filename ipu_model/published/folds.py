"""Cross-validation by workload: every figure is predicted once with constants that never saw its workload."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ipu_model.calibrate import case_key, summary
from ipu_model.published.score import errors, fit_all, group_of, quantity

Row = Mapping[str, Any]
FREE = ("cell-order",)  # flags without effect on the price (the order of weights), left out of the workload key


def workload(row: Row) -> str:
    """A key of the workload of a row, equal for all chips, metrics and spellings."""
    family, config = json.loads(case_key(row))
    params = config.get("params")
    if isinstance(params, dict):
        config["params"] = {k: v for k, v in cast("dict[str, Any]", params).items() if k not in FREE}
    return json.dumps([family, config], sort_keys=True)


def places(rows: Sequence[Row], folds: int, seed: int) -> list[int]:
    """The fold of each row; workloads of an operation are dealt evenly, in an order that `seed` decides."""
    groups: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        groups[group_of(row)].add(workload(row))
    place: dict[tuple[str, str], int] = {}
    for group, keys in groups.items():
        order = sorted(keys, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest())
        place.update({(group, key): i % folds for i, key in enumerate(order)})
    return [place[group_of(row), workload(row)] for row in rows]


def unseen(rows: Sequence[Row], folds: int, seed: int) -> Iterator[tuple[Row, float]]:
    """Each row with the relative error of its prediction by constants that were fitted without its workload."""
    place = places(rows, folds, seed)
    for fold in range(folds):
        constants = fit_all([row for row, p in zip(rows, place, strict=True) if p != fold])
        yield from errors([row for row, p in zip(rows, place, strict=True) if p == fold], constants)


def residuals(rows: Sequence[Row], folds: int = 2) -> dict[str, dict[str, float]]:
    """Errors of unseen workloads by operation (or family) and quantity, as `ipu_model.uncertainty` reads them."""
    values: dict[str, list[float]] = defaultdict(list)
    for row, error in unseen(rows, folds, seed=0):
        values[f"{group_of(row)}/{quantity(row)}"].append(error)
    found = {sort: summary(each) for sort, each in sorted(values.items())}
    return {
        sort: {"median": round(s["median"], 4), "p90": round(s["p90"], 4), "rows": int(s["count"])}
        for sort, s in found.items()
    }


def store(path: Path, found: Mapping[str, Mapping[str, float]]) -> None:
    """Write residuals as a data file, one sort a line."""
    about = "relative errors on public rows whose workload the fit had not seen, by operation or family and quantity"
    lines = ",\n".join(f"  {json.dumps(sort)}: {json.dumps(row)}" for sort, row in found.items())
    path.write_text('{"about": ' + json.dumps(about) + ',\n "errors": {\n' + lines + "\n }}\n")
