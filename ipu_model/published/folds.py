"""Cross-validation by workload: every figure is predicted once with constants that never saw its workload."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ipu_model.calibrate import case_key, summary
from ipu_model.published.score import errors, fit_all, group_of, quantity

Row = Mapping[str, Any]
Key = tuple[str, str, str, str]
FREE = ("cell-order",)  # flags that change the order of weights, nothing that is priced: such rows are one workload


def workload(row: Row) -> str:
    """What a row runs, equal for all chips, metrics and spellings."""
    family, config = json.loads(case_key(row))
    params = config.get("params")
    if isinstance(params, dict):
        config["params"] = {k: v for k, v in params.items() if k not in FREE}
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


def cross_validate(rows: Sequence[Row], folds: int = 5, seeds: Sequence[int] = (0,)) -> dict[Key, list[dict[str, Any]]]:
    """Errors of unseen workloads by kind, family, operation and quantity: one summary per way of dealing.

    Parameters
    ----------
    rows : sequence of dict
        Figures with their values.
    folds : int
        Parts that the workloads are dealt to; a fit sees all but one of them.
    seeds : sequence of int
        Ways of dealing; the spread of their results tells how much one of them can be trusted.
    """
    found: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for seed in seeds:
        place, unseen = places(rows, folds, seed), defaultdict(list)
        for fold in range(folds):
            constants = fit_all([row for row, p in zip(rows, place, strict=True) if p != fold])
            for row, error in errors([row for row, p in zip(rows, place, strict=True) if p == fold], constants):
                kind = "estimate" if row["kind"] == "ipu_model_estimate" else "measured"
                unseen[kind, str(row["family"]), str(row["config"].get("op", "")), quantity(row)].append(error)
        for key, values in unseen.items():
            found[key].append(summary(values))
    return dict(sorted(found.items()))


def spread(results: Mapping[Key, Sequence[Mapping[str, float]]]) -> list[list[str]]:
    """Rows of a table: count, then least to greatest median and 90th percentile over the ways of dealing."""

    def between(parts: Sequence[Mapping[str, float]], name: str) -> str:
        values = sorted(part[name] for part in parts)
        return f"{values[0]:.1%}" if values[0] == values[-1] else f"{values[0]:.1%} to {values[-1]:.1%}"

    return [
        [*key, str(int(parts[0]["count"])), between(parts, "median"), between(parts, "p90")]
        for key, parts in results.items()
    ]
