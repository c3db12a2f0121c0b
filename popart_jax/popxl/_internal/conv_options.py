"""Options of convolutions for the cost model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MultiConvOptions:
    """Memory proportions, partial types and the like; lists are empty when nothing was given."""

    availableMemoryProportions: list[float] = field(default_factory=list)  # noqa: N815 - names of the internal IR
    partialsTypes: list[str] = field(default_factory=list)  # noqa: N815
    planType: str | None = None  # noqa: N815
    perConvReservedTiles: int | None = None  # noqa: N815
    cycleBackOff: float | None = None  # noqa: N815
    enableConvDithering: list[int] = field(default_factory=list)  # noqa: N815

    def copy(self) -> MultiConvOptions:
        """Independent lists."""
        return MultiConvOptions(
            list(self.availableMemoryProportions), list(self.partialsTypes), self.planType, self.perConvReservedTiles,
            self.cycleBackOff, list(self.enableConvDithering),
        )  # fmt: skip
