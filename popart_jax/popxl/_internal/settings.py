"""Placement and scope of one operator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .enums import ExecutionContext, TileSet
from .values import Scope


@dataclass
class Settings:
    """Settings that an operator takes from the context in which it is created.

    Attributes
    ----------
    graph : internal graph or None
        The operator's graph.
    name : str
        Name scopes and the operator's own name.
    vgraphId : int or None
        IPU.
    tileSet : TileSet
        Compute or IO tiles.
    executionContext : ExecutionContext
        Program it belongs to.
    pipelineStage, executionPhase, batchSerializedPhase : int or None
        Stage and phases.
    scope : Scope or None
        Its scope, where that is not the graph's.
    """

    graph: Any = None
    name: str = ""
    vgraphId: int | None = None
    tileSet: TileSet = TileSet.Compute
    executionContext: ExecutionContext = ExecutionContext.Normal
    pipelineStage: int | None = None
    executionPhase: int | None = None
    batchSerializedPhase: int | None = None
    scope: Scope | None = None
    inferTensorMappingToFrom: dict[int, int] | None = None
    debugInfoId: int = 0

    def getIr(self) -> Any:
        """The Ir of the graph."""
        return self.graph.getIr()

    def copy(self, name: str | None = None) -> Settings:
        """An independent copy, under another name if given."""
        return replace(self) if name is None else replace(self, name=name)
