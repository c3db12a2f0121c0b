"""Explanation of a prediction: its terms, the plans behind them, and the errors of similar predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_model.planner.plan import Plan
from ipu_model.published.formula import FIXED, Formula
from ipu_model.published.rows import group_of, model, quantity, target_of
from ipu_model.target import Target
from ipu_model.uncertainty import Uncertainty, of_sort


@dataclass(frozen=True)
class Explanation:
    """A prediction with its reasons."""

    value: float  # the prediction, in `unit`
    unit: str
    # the terms of its sum, before conversion to a rate or unit, largest first: cycles or bytes by cause
    terms: dict[str, float]
    scale: float  # factor of the sum, beside rate and unit
    plans: tuple[str, ...]  # how each planned operation runs
    assumed: tuple[str, ...]  # assumptions where the row does not say something
    uncertainty: Uncertainty | None  # none where no figure of the same sort was published

    def __str__(self) -> str:
        spread = self.uncertainty
        within = f", {spread}" if spread else ""
        total = sum(self.terms.values()) or 1.0
        lines = [f"{self.value:,.6g} {self.unit}{within}"]
        lines += [f"  {value / total:6.1%}  {value:14,.0f}  {name}" for name, value in self.terms.items() if value]
        lines += [f"  plan: {plan}" for plan in self.plans]
        return "\n".join([*lines, *(f"  assumed: {words}" for words in self.assumed)])


def explain(row: Mapping[str, Any], target: Target | None = None) -> Explanation:
    """Predict a published figure and say why; see `ipu_model.published.predict`."""
    target = target or target_of(row)
    formula = model(row, target)
    alternatives = formula.terms(target)
    chosen = max(alternatives, key=lambda terms: sum(terms.values()))
    terms = {name: float(value) for name, value in chosen.items() if name != FIXED}
    terms |= _known(formula, float(chosen.get(FIXED, 0.0)), target)
    scale = float(target.fitted.get(formula.scale, 1.0)) if formula.scale else 1.0
    ordered = dict(sorted(terms.items(), key=lambda term: -abs(term[1])))
    plans = tuple(_described(plan) for plan in formula.plans)
    return Explanation(
        float(formula(target)), str(row.get("unit", "")), ordered, scale, plans, formula.assumed, uncertainty_of(row)
    )


def _known(formula: Formula, whole: float, target: Target) -> dict[str, float]:
    """The part that needs no constant, by the quantities of the plans it comes from."""
    found: dict[str, float] = {}
    for plan in formula.plans:
        for name in plan.exact:
            key = f"{plan.family}.{name}"
            found[key] = found.get(key, 0.0) + float(plan.quantities.get(name, 0.0))
    rest = whole - sum(found.values())
    return {**found, "known sizes": rest} if abs(rest) > 1e-6 * max(1.0, abs(whole)) else found


def _described(plan: Plan) -> str:
    return (
        f"{plan.family} by {plan.method or 'its formula'} on {plan.tiles} tiles, {plan.temporary_bytes:,.0f} bytes each"
    )


def uncertainty_of(row: Mapping[str, Any]) -> Uncertainty | None:
    """Errors of predictions of this row's operation and quantity on published figures."""
    return of_sort(f"{group_of(row)}/{quantity(row)}")
