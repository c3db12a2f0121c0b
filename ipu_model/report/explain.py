"""Why a program costs what it costs: cycles by sort of operation, the dearest steps with their plans, and how sure."""

# pyright: strict
from __future__ import annotations

from ipu_model.report.model import NO_SCOPE, Document, StepRow
from ipu_model.uncertainty import Uncertainty, of_program, of_sort, sort_of

OTHER = "bound by memory"


def uncertainty(report: Document, quantity: str = "cycles") -> Uncertainty | None:
    """Errors to expect of a report; see `ipu_model.uncertainty.of_program`."""
    return of_program(((step.primitive, _cycles(step)) for step in report.steps), quantity)


def _cycles(step: StepRow) -> float:
    return float(step.cycles.total) * step.trips


def explain(report: Document, steps: int = 10) -> str:
    """Text: terms of the price by sort of operation, each with its error, then the dearest steps and their plans.

    Parameters
    ----------
    steps : int
        How many of the dearest steps to list.
    """
    within = uncertainty(report)
    lines = [f"{report.schedule.cycles:,.0f} cycles" + (f", {within}" if within else "")]
    sums: dict[str, float] = {}
    for step in report.steps:
        sort = sort_of(step.primitive) or OTHER
        sums[sort] = sums.get(sort, 0.0) + _cycles(step)
    whole = sum(sums.values()) or 1.0
    for sort, cycles in sorted(sums.items(), key=lambda item: -item[1]):
        error = of_sort(f"{sort}/cycles")
        lines.append(f"  {cycles / whole:6.1%}  {cycles:14,.0f}  {sort}" + (f", {error}" if error else ""))
    dearest = sorted(report.steps, key=_cycles, reverse=True)[:steps]
    lines += [_step(step, _cycles(step) / whole) for step in dearest if step.cycles.total]
    return "\n".join([*lines, *(f"  assumed: {words}" for words in report.assumptions)])


def _step(step: StepRow, share: float) -> str:
    name = step.node or (step.name if step.name != NO_SCOPE else "")
    plan = "; ".join(
        f"{part.vertex or part.name} on {part.tiles:,} tiles" for part in step.parts if part.tiles
    ) or "no vertex of its own"  # fmt: skip
    return f"  {share:6.1%}  {step.primitive} {step.shape} {name}: {plan}"
