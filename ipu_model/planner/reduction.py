"""Reductions over any axes: how many stages the partial results pass through, and what they cost."""

from __future__ import annotations

import math

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.mapping import linear_share
from ipu_model.planner.plan import Plan
from ipu_model.target import Machine, Target

PIECE_ELEMENTS = 64  # an intermediate stage gives a tile at least this many partial results
PROGRAM = 950.0  # cycles of the smallest programs of the table: one vertex, a few copies
ROW = 8  # elements that a worker adds together; longer columns count as so many rows
SIZES = {"half": 2, "float": 4}


def plan_reduction(shape: tuple[int, ...], dims: tuple[int, ...], target: Target, data: str = "half") -> Plan:
    """Plan a reduction of a linearly mapped tensor over `dims`.

    Each tile first adds up what it holds. While partial results of an output lie on too many tiles, intermediate
    stages bring together as many as fill the smallest piece of work (64 elements, columns of one vector).
    """
    size, machine = SIZES[data], target.machine
    elements = math.prod(shape)
    share = linear_share(elements, size, machine)
    tiles = cdiv(elements, share)
    sources = contributing_tiles(shape, dims, share)
    outputs = math.prod(n for d, n in enumerate(shape) if d not in dims)
    partials = min(share, held_columns(shape, dims, share))
    stages = _stages(sources, partials * tiles, outputs, tiles, machine)
    inner = math.prod(shape[max(dims) + 1 :]) if dims else 1
    local = partials < share
    rows = share / max(ROW, inner) if local else 0.0
    return Plan(
        "reduce",
        {"program": PROGRAM, "stages": float(max(0, stages - (not local))), "rows": rows},
        exact=frozenset({"program"}),
        method="reduce",
        tiles=tiles,
        temporary_bytes=float(share * 4),
        tile_bytes={"inputs": float(share * size), "outputs": float(cdiv(outputs, target.tiles) * size)},
        detail={"sources": sources, "stages": stages, "outputs": outputs, "partials": partials},
    )


def _stages(sources: int, partials: int, outputs: int, tiles: int, machine: Machine) -> int:
    """Stages after the first, each an exchange and a compute set."""
    if sources <= 1:
        return 0
    count, used = 1, tiles
    while partials > PIECE_ELEMENTS * outputs:
        if sources < 2 * math.sqrt(machine.tiles) and used > 3 * machine.tiles / 4:
            break
        rows = max(2, max(PIECE_ELEMENTS, partials // machine.tiles) // (machine.vector_bytes // 2))
        if rows >= sources:
            break
        sources = cdiv(sources, rows)
        partials, count = sources * outputs, count + 1
        used = min(machine.tiles, cdiv(partials, PIECE_ELEMENTS))
    return count


def held_columns(shape: tuple[int, ...], dims: tuple[int, ...], share: int) -> int:
    """Different outputs that a run of `share` elements in order contributes to, about."""
    span, columns = 1, 1
    for d in reversed(range(len(shape))):
        if span >= share:
            break
        if d not in dims:
            columns *= min(shape[d], cdiv(share, span))
        span *= shape[d]
    return columns


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
