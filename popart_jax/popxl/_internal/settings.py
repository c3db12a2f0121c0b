"""Placement and scope of one operator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .enums import ExecutionContext, TileSet


@dataclass
class Settings:
    """What an operator gets from the context it is created in.

    Attributes
    ----------
    name : str
        Name scopes and the operator's own name.
    vgraphId : int or None
        IPU.
    tileSet : TileSet
        Compute or IO tiles.
    executionContext : ExecutionContext
        Program it belongs to.
    pipelineStage : int or None
        Pipeline stage.
    """

    name: str = ""
    vgraphId: int | None = None
    tileSet: TileSet = TileSet.Compute
    executionContext: ExecutionContext = ExecutionContext.Normal
    pipelineStage: int | None = None
    inferTensorMappingToFrom: dict[int, int] | None = None
    debugInfoId: int = 0

    def copy(self, name: str | None = None) -> Settings:
        """An independent copy, under another name if given."""
        return replace(self) if name is None else replace(self, name=name)
