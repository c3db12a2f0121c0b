"""Why a program costs what it does: cycles by sort of operation, the most expensive steps and plans, and how sure."""

from __future__ import annotations

from ipu_model.checks import check_choice, check_sizes
from ipu_model.report.model import Document, StepRow
from ipu_model.uncertainty import Uncertainty, of_program, of_sort, sort_of

OTHER = "bound by memory"
QUANTITIES = ("cycles", "total memory", "max tile memory")


def uncertainty(report: Document, quantity: str = "cycles") -> Uncertainty | None:
    """Errors to expect of a report, None for what is no IPU; see `ipu_model.uncertainty.of_program`."""
    check_choice("uncertainty", "quantity", quantity, QUANTITIES)
    if not _on_ipu(report):
        return None
    return of_program(((step.primitive, _cycles(step)) for step in report.steps), quantity)


def _on_ipu(report: Document) -> bool:
    return report.target.get("architecture") != "roofline"


def _cycles(step: StepRow) -> float:
    return float(step.cycles.total) * step.trips


def explain(report: Document, steps: int = 10) -> str:
    """Text: terms of the price by sort of operation, each with its error, then the most expensive steps with plans.

    Of these there are `steps`; those that do alike count as one.
    """
    check_sizes("explain", 0, steps=steps)
    within = uncertainty(report)
    lines = [f"{report.schedule.cycles:,.0f} cycles" + (f", {within}" if within else "")]
    sums: dict[str, float] = {}
    for step in report.steps:
        sort = sort_of(step.primitive) or OTHER
        sums[sort] = sums.get(sort, 0.0) + _cycles(step)
    whole = sum(sums.values()) or 1.0
    for sort, cycles in sorted(sums.items(), key=lambda item: -item[1]):
        error = of_sort(f"{sort}/cycles") if _on_ipu(report) else None
        lines.append(f"  {cycles / whole:6.1%}  {cycles:14,.0f}  {sort}" + (f", {error}" if error else ""))
    beside = report.schedule.cycles - sum(sums.values())
    if abs(beside) >= 1:
        lines.append(f"          {beside:+14,.0f}  {_beside(report)}")
    alike: dict[tuple[str, str], list[StepRow]] = {}
    for step in report.steps:
        alike.setdefault((f"{step.primitive} {step.shape}", _plan(step)), []).append(step)
    most = sorted(((sum(map(_cycles, each)), *what, each) for what, each in alike.items()), key=lambda row: -row[0])
    lines += [
        f"  {cycles / whole:6.1%}  {what} {_names(each)}: {plan}" for cycles, what, plan, each in most[:steps] if cycles
    ]
    return "\n".join([*lines, *(f"  assumed: {words}" for words in report.assumptions)])


def _beside(report: Document) -> str:
    """Why a run takes more or less than its steps one after another."""
    if not _on_ipu(report):
        return "start of the program"
    if report.schedule.stages:
        return "IPUs of the pipeline side by side, waiting for each other while it fills and drains"
    return "host traffic behind other work"


def _plan(step: StepRow) -> str:
    parts = (f"{part.vertex or part.name} on {part.tiles:,} tiles" for part in step.parts if part.tiles)
    own = ("inside the vertex behind it",) if step.fused else ()
    return "; ".join((*parts, *own)) or "no vertex"


def _names(steps: list[StepRow]) -> str:
    """Where steps come from: the first, and how many more."""
    return f"{steps[0].label} and {len(steps) - 1} more" if len(steps) > 1 else steps[0].label
