"""Fit the constants of a target that no document gives to measured or published figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import optimize

from ipu_model.published.formula import FIXED, Formula
from ipu_model.published.rows import model, target_of
from ipu_model.target import Target

Figure = Mapping[str, Any]
Errors = dict[str, dict[str, float]]
SOFTNESS = 0.03  # relative error above which a figure pulls linearly instead of quadratically
PRIOR = 3.0  # weight of the squared logarithm by which a constant leaves its starting value


@dataclass(frozen=True)
class Calibration:
    """Outcome of a fit."""

    target: Target  # the target with its fitted constants replaced
    constants: dict[str, float]  # the fitted constants by name
    # errors by family on the figures used for the fit and on those held back for validation; see `summary`
    train: Errors = field(default_factory=dict[str, dict[str, float]])
    validation: Errors = field(default_factory=dict[str, dict[str, float]])

    def save(self, path: Path, source: str) -> None:
        """Store the constants as a data file, each with its source."""
        old: dict[str, Any] = json.loads(path.read_text())["constants"] if path.exists() else {}
        starts = {k: {"start": row["start"]} for k, row in old.items() if "start" in row}
        new = {k: {"value": _rounded(v), "source": source, **starts.get(k, {})} for k, v in self.constants.items()}
        rows = {**old, **new}
        body = ",\n".join(f"  {json.dumps(k)}: {json.dumps(rows[k])}" for k in sorted(rows))
        about = "constants that no document gives, found by ipu_model.calibrate; plans are never fitted"
        path.write_text('{"about": ' + json.dumps(about) + ',\n "constants": {\n' + body + "\n }}\n")


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def split_by_case(figures: Sequence[Figure], keep: float = 0.5) -> tuple[list[Figure], list[Figure]]:
    """Split figures into two parts that share no workload: all chips and metrics of one configuration stay together.

    Which part a workload goes to depends on its family and configuration only, not on which families are present.
    """
    families: dict[str, set[str]] = {}
    for figure in figures:
        families.setdefault(f"{figure['family']}/{figure['config'].get('op')}", set()).add(case_key(figure))
    chosen: set[str] = set()
    for keys in families.values():
        order = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
        chosen.update(order[: max(1, round(keep * len(order)))])
    return [f for f in figures if case_key(f) in chosen], [f for f in figures if case_key(f) not in chosen]


def case_key(figure: Figure) -> str:
    """What a figure was measured on, apart from chip and metric: the configuration without its label."""
    config = {k: v for k, v in figure["config"].items() if k not in ("case", "caution", "note")}
    return json.dumps([figure["family"], config], sort_keys=True)


def calibrate(
    figures: Iterable[Figure],
    target: Target | Callable[[Figure], Target] | None = None,
    *,
    names: Iterable[str] = (),
    keep: float = 0.5,
) -> Calibration:
    """Fit constants to figures with the plans frozen.

    Parameters
    ----------
    figures : iterable of dict
        Rows with their ``value``, in the form of the published table.
    target : Target, or function of a figure, optional
        Where the search starts, and the chip of each figure; the chip that each row names by default.
    names : iterable of str
        Prefixes of the constants to fit; all that the figures depend on by default.
    keep : float
        Fraction of the workloads used for the fit; the rest validates it. 1 fits on everything.

    Returns
    -------
    Calibration
        Minimises a soft L1 norm of ``log(predicted / published)``.
    """
    rows = [f for f in figures if isinstance(f.get("value"), int | float)]

    def chip(f: Figure) -> Target:
        return target(f) if callable(target) else target or target_of(f)

    models = [(f, model(f, chip(f)), chip(f)) for f in rows]
    train, validation = split_by_case(rows, keep) if keep < 1 else (rows, [])
    prefixes = tuple(names) or ("",)
    fit_ids = {id(f) for f in train}
    fitted = _fit([m for m in models if id(m[0]) in fit_ids], prefixes)
    errors = [_errors([m for m in models if (id(m[0]) in fit_ids) == first], fitted) for first in (True, False)]
    base = target if isinstance(target, Target) else models[0][2]
    return Calibration(base.with_fitted(fitted), fitted, errors[0], errors[1] if validation else {})


def _fit(models: list[tuple[Figure, Formula, Target]], prefixes: tuple[str, ...]) -> dict[str, float]:
    """Least squares of the logarithms of predicted over published, soft for figures, plain for the prior."""
    used = sorted({n for _, m, _ in models for n in m.constants() if n.startswith(prefixes)})
    if not used:
        return {}
    matrix, scale, goal = _equations(models, used)
    balance = np.array(_balance(models))
    start = np.append(_start(models, used, matrix[:, 0], scale, goal, balance), 1.0)
    shares = matrix * start / goal[:, None, None]  # of each constant in each figure, where the search starts
    rows, count = np.arange(len(models)), len(models)

    def residuals(logs: np.ndarray) -> np.ndarray:
        constants = np.append(np.exp(logs), 1.0)
        amount = np.max(shares @ constants, axis=1) * constants[scale] * start[scale]
        return np.append(np.log(np.maximum(amount, 1e-30)) / SOFTNESS, np.sqrt(2 * PRIOR) * logs)

    def jacobian(logs: np.ndarray) -> np.ndarray:
        constants = np.append(np.exp(logs), 1.0)
        sums = shares @ constants
        chosen = np.argmax(sums, axis=1)
        slopes = shares[rows, chosen] * constants / np.maximum(sums[rows, chosen], 1e-30)[:, None]
        slopes[rows, scale] += 1.0
        return np.vstack([slopes[:, :-1] / SOFTNESS, np.sqrt(2 * PRIOR) * np.eye(len(used))])

    def loss(squares: np.ndarray) -> np.ndarray:
        """Value and two derivatives, figure by figure: ``2 w (sqrt(1 + z) - 1)`` for figures, ``z`` for the prior."""
        root = np.sqrt(1 + squares[:count])
        soft = balance * np.array([2 * (root - 1), 1 / root, -0.5 / root**3])
        prior = squares[count:]
        return np.hstack([soft, [prior, np.ones_like(prior), np.zeros_like(prior)]])

    minimise = cast(
        "Any", optimize.least_squares
    )  # its annotations know only the names of built-in losses and derivatives
    found = minimise(residuals, np.zeros(len(used)), jacobian, loss=loss, x_scale="jac")
    return dict(zip(used, (start[:-1] * np.exp(found.x)).tolist(), strict=True))


def _equations(
    models: list[tuple[Figure, Formula, Target]], used: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each figure: factors of the constants in each alternative, the index of its scale, the amount to reach.

    The last column and index stand for 1.
    """
    columns = {n: i for i, n in enumerate(used)}
    width = max(len(m.alternatives) for _, m, _ in models)
    matrix = np.zeros((len(models), width, len(used) + 1))
    scale = np.full(len(models), len(used))
    goal = np.zeros(len(models))
    for i, (figure, m, chip) in enumerate(models):
        for j in range(width):
            matrix[i, j] = _row(m, m.alternatives[min(j, len(m.alternatives) - 1)], chip, columns)
        scale[i] = columns.get(m.scale, len(used))
        goal[i] = _amount(m, chip, float(figure["value"]))
    return matrix, scale, goal


def _start(
    models: list[tuple[Figure, Formula, Target]],
    used: Sequence[str],
    matrix: np.ndarray,
    scale: np.ndarray,
    goal: np.ndarray,
    balance: np.ndarray,
) -> np.ndarray:
    """Starting values: the constant in use, or where there is none, non-negative least squares of relative errors."""
    known = {n: t.fitted[n] for _, m, t in models for n in m.constants() if n in t.fitted}
    new = np.array([n not in known for n in used])
    start = np.array([known.get(n, 1.0) for n in used])
    plain = np.array([len(m.alternatives) == 1 for _, m, _ in models]) & (scale == len(used))
    if not new.any() or not plain.any():
        return start
    weight = (np.sqrt(balance) / goal)[plain]
    rest = goal[plain] - matrix[plain][:, [*~new, True]] @ np.append(start[~new], 1.0)
    found = cast("np.ndarray", optimize.nnls(matrix[plain][:, [*new, False]] * weight[:, None], rest * weight)[0])
    with np.errstate(divide="ignore"):
        whole = np.min(np.where(matrix[:, :-1] > 0, goal[:, None] / matrix[:, :-1], np.inf), axis=0)
    # a constant that least squares sets to zero starts at a thousandth of what alone would explain its smallest figure
    start[new] = np.maximum(found, 1e-3 * whole[new])
    return start


def _row(m: Formula, quantities: Mapping[str, float], chip: Target, columns: Mapping[str, int]) -> np.ndarray:
    row = np.zeros(len(columns) + 1)
    slow = chip.machine.exchange_bytes / chip.exchange_bytes_per_cycle
    for name, value in quantities.items():
        amount = value * (slow if name in m.exchange else 1.0)
        if name in columns:
            row[columns[name]] += amount
        else:
            row[-1] += amount * (1.0 if name == FIXED else chip.fitted.get(name, 1.0))
    return row


def _amount(m: Formula, chip: Target, value: float) -> float:
    """The sum that a formula must reach for its answer to be `value`."""
    amount = m.numerator / (value * m.unit) if m.numerator else value * m.unit
    return amount * chip.clock_hz if m.seconds else amount


def _balance(models: list[tuple[Figure, Formula, Target]]) -> list[float]:
    """Weight of each row: the inverse root of its operation's number of rows, scaled to a mean of one."""
    kinds = [f["config"].get("op", f["family"]) for f, _, _ in models]
    weights = [kinds.count(k) ** -0.5 for k in kinds]
    return [w * len(weights) / sum(weights) for w in weights]


def _errors(models: list[tuple[Figure, Formula, Target]], constants: Mapping[str, float]) -> Errors:
    by_family: dict[str, list[float]] = {}
    for figure, m, chip in models:
        error = float(m(chip.with_fitted(constants))) / float(figure["value"]) - 1
        by_family.setdefault(f"{figure['family']} [{figure['unit']}]", []).append(error)
    return {family: summary(errors) for family, errors in sorted(by_family.items())}


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Median and 90th percentile of absolute errors, signed median, count."""
    e = np.asarray(errors)
    return {
        "median": float(np.median(abs(e))),
        "p90": float(np.percentile(abs(e), 90)),
        "bias": float(np.median(e)),
        "count": len(e),
    }
