"""Options of convolutions for the cost model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)  # a misspelt option is refused
class MultiConvOptions:
    """Memory proportions, partial types and the like; lists are empty when nothing was given."""

    availableMemoryProportions: list[float] = field(default_factory=list[float])
    partialsTypes: list[str] = field(default_factory=list[str])
    planType: str | None = None
    perConvReservedTiles: int | None = None
    cycleBackOff: float | None = None
    enableConvDithering: list[int] = field(default_factory=list[int])

    def copy(self) -> MultiConvOptions:
        """Independent lists."""
        return MultiConvOptions(
            list(self.availableMemoryProportions), list(self.partialsTypes), self.planType, self.perConvReservedTiles,
            self.cycleBackOff, list(self.enableConvDithering),
        )  # fmt: skip
