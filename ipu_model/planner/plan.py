"""The result of every planner: quantities (cycles by cause) that a target's constants turn into a price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ipu_model.target import Target


@dataclass(frozen=True)
class Plan:
    """One operation spread over the tiles."""

    family: str  # prefix of the fitted constants that price the operation
    # priced quantities: cycles of vertex code, cycles of exchange at the nominal rate, bytes copied, steps
    quantities: dict[str, float]
    exchange: frozenset[str] = frozenset()  # the quantities that scale with the exchange rate of the target
    exact: frozenset[str] = frozenset()  # the quantities that need no constant: vertex formulas of the library
    method: str = ""  # how the inner loop runs
    tiles: int = 0  # tiles used
    temporary_bytes: float = 0.0  # temporary memory of the fullest tile
    interleaved_bytes: float = 0.0  # part of it that must be in interleaved memory
    tile_bytes: dict[str, float] = field(default_factory=dict[str, float])  # operands and results on the fullest tile
    detail: Any = None  # the family's own record of the decision

    def breakdown(self, target: Target) -> dict[str, float]:
        """Cycles by cause; differentiable in the leaves of `target`."""
        return price(self.family, self.quantities, target, self.exchange, self.exact)

    def cycles(self, target: Target) -> float:
        """Cycles of the operation, with everything that its step costs."""
        return sum(self.breakdown(target).values())


def price(
    family: str,
    quantities: Mapping[str, float],
    target: Target,
    exchange: frozenset[str] = frozenset(),
    exact: frozenset[str] = frozenset(),
) -> dict[str, float]:
    """Cycles of each quantity: times the fitted constant ``family.name``, or unchanged for names in `exact`."""
    slow = target.machine.exchange_bytes / target.exchange_bytes_per_cycle
    return {
        name: value
        * (1.0 if name in exact else target.fitted.get(f"{family}.{name}", 1.0))
        * (slow if name in exchange else 1.0)
        for name, value in quantities.items()
    }
