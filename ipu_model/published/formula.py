"""A prediction as a differentiable function of a target: quantities times constants, the largest of alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from ipu_model.cost import softer_larger
from ipu_model.planner.plan import Plan
from ipu_model.target import Target

FIXED = ""  # the constant of a quantity that is known exactly
EXCHANGED = "exchange"  # that of an exchange at the nominal rate
KNOWN = (FIXED, EXCHANGED)


@dataclass(frozen=True)
class Formula:
    """``maximum over alternatives of sum(quantity * constant)``, turned into the unit of a figure."""

    alternatives: tuple[Mapping[str, float], ...]  # each maps a fitted constant (or ``FIXED``) to its quantity
    # constants whose quantity is exchange at the nominal rate
    exchange: frozenset[str] = field(default_factory=frozenset[str])
    scale: str = FIXED  # a fitted constant that multiplies everything
    numerator: float = 0.0  # when positive the figure is a rate: this much work per predicted time
    seconds: bool = False  # whether cycles become seconds
    unit: float = 1.0  # divides the answer (1e12 for TFLOP/s, 1e-3 for milliseconds)
    # the quantity of the sum before unit conversion: ``"cycles"``, ``"bytes"``, ``"byte/s"``, ``"number"``, ...
    gives: str = "cycles"
    # work done in those cycles, for rates and shares: ``flop``, ``byte``, ``item``, ``token``, ``step``, ``cell``;
    # `share` is the seconds that the chip needs for it at its peak
    work: Mapping[str, float] = field(default_factory=dict[str, float])
    # the plans that the quantities come from; only `explain` uses them
    plans: tuple[Plan, ...] = field(default=(), compare=False, repr=False)
    assumed: tuple[str, ...] = field(default=(), compare=False)  # assumptions where the row does not say something

    def constants(self) -> set[str]:
        """Fitted constants that the prediction depends on."""
        names = {name for each in self.alternatives for name in each} | {self.scale}
        return names.difference(KNOWN)

    def __call__(self, target: Target, smooth: float = 0.0) -> float:
        """The prediction for `target`, in the unit of the figure; the maximum is smoothed over a width of `smooth`."""
        sums: list[Any] = [sum(terms.values()) for terms in self.terms(target)]
        amount = reduce(lambda a, b: softer_larger(a, b, smooth), sums)
        amount = amount * _constant(target, self.scale)
        if self.seconds:
            amount = amount / target.clock_hz
        return (self.numerator / amount if self.numerator else amount) / self.unit

    def shared(self, count: float) -> Formula:
        """The figure of one of `count` equal parts."""
        shares = ({name: value / count for name, value in each.items()} for each in self.alternatives)
        return replace(self, alternatives=tuple(shares))

    def terms(self, target: Target) -> list[dict[str, Any]]:
        """What each constant contributes to each alternative, before `scale`, rate and unit."""
        slow = target.machine.exchange_bytes / target.exchange_bytes_per_cycle
        rate = {name: slow if name in self.exchange else 1.0 for each in self.alternatives for name in each}
        return [
            {name: value * _constant(target, name) * rate[name] for name, value in each.items()}
            for each in self.alternatives
        ]


def _constant(target: Target, name: str) -> float:
    return 1.0 if name in KNOWN else target.fitted.get(name, 1.0)


def known(value: float, gives: str = "number") -> Formula:
    """A figure that needs no constant."""
    return Formula(({FIXED: float(value)},), gives=gives)


def of_plans(plans: Iterable[Plan], family: str | None = None, extra: Mapping[str, float] | None = None) -> Formula:
    """Cycles of plans that run one after another, `extra` being further fixed or fitted quantities."""
    sums: dict[str, float] = dict(extra or {})
    exchange: set[str] = set()
    plans = tuple(plans)
    for plan in plans:
        prefix = family or plan.family
        for name, value in plan.quantities.items():
            key = FIXED if name in plan.exact else f"{prefix}.{name}"
            sums[key] = sums.get(key, 0.0) + value
        exchange |= {f"{prefix}.{name}" for name in plan.exchange}
    return Formula((sums,), frozenset(exchange), plans=plans)
