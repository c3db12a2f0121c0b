"""Reductions over any axes: how many stages the partial results pass through, and what they cost."""

from __future__ import annotations

import math

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.mapping import linear_share
from ipu_model.planner.plan import Plan
from ipu_model.target import Target

PIECE_ELEMENTS = 64  # an intermediate stage gives a tile at least this many partial results
SIZES = {"half": 2, "float": 4}


def plan_reduction(shape: tuple[int, ...], dims: tuple[int, ...], target: Target, data: str = "half") -> Plan:
    """Plan a reduction of a linearly mapped tensor over `dims`.

    Each tile first adds up what it holds. Partial results of one output then meet in stages, a stage bringing
    together as many as fill the smallest piece of work (64 elements, columns of one vector).
    """
    size, grain = SIZES[data], target.machine.vector_bytes // SIZES[data]
    elements = math.prod(shape)
    share = linear_share(elements, size, target.machine)
    tiles = cdiv(elements, share)
    sources = contributing_tiles(shape, dims, share)
    rows = PIECE_ELEMENTS // grain
    stages = max(1, math.ceil(math.log(max(sources, 1)) / math.log(rows))) if sources > 1 else 0
    outputs = math.prod(n for d, n in enumerate(shape) if d not in dims)
    return Plan(
        "reduce",
        {"base": 1.0, "stages": float(max(0, stages - 1)), "elements": 6 * share / 4},
        method="reduce",
        tiles=tiles,
        temporary_bytes=float(share * 4),
        tile_bytes={"inputs": float(share * size), "outputs": float(cdiv(outputs, target.tiles) * size)},
        detail={"sources": sources, "stages": stages, "outputs": outputs},
    )


def contributing_tiles(shape: tuple[int, ...], dims: tuple[int, ...], share: int) -> int:
    """Tiles that hold a part of one output when the tensor lies in order, `share` elements on each tile.

    Reduced dimensions inside a tile's run cost no exchange; an outer one multiplies the tiles.
    """
    count, inner = 1, 1
    for d in reversed(range(len(shape))):
        if d in dims:
            span = inner * shape[d]
            if span > share:
                count *= min(shape[d], cdiv(span, max(share, inner)))
        inner *= shape[d]
    return count
