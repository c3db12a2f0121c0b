"""Placement and scope of one operator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .enums import ExecutionContext, TileSet
from .values import Scope


@dataclass
class Settings:
    """Settings that an operator takes from the context in which it is created."""

    graph: Any = None  # the operator's graph
    name: str = ""  # name scopes and the operator's own name
    vgraphId: int | None = None  # IPU
    tileSet: TileSet = TileSet.Compute  # compute or IO tiles
    executionContext: ExecutionContext = ExecutionContext.Normal  # program it belongs to
    pipelineStage: int | None = None
    executionPhase: int | None = None
    batchSerializedPhase: int | None = None
    scope: Scope | None = None  # its scope, where that is not the graph's
    inferTensorMappingToFrom: dict[int, int] | None = None
    debugInfoId: int = 0

    def getIr(self) -> Any:
        """The Ir of the graph."""
        return self.graph.getIr()

    def copy(self, name: str | None = None) -> Settings:
        """An independent copy, under another name if given."""
        return replace(self) if name is None else replace(self, name=name)
