"""Poplar's execution profile, as its simulator writes it: every step with its cycles. Field names are Poplar's.

Loops are folded: a step appears once, with the cycles of all its runs and their number.
"""

from __future__ import annotations

from typing import Any

from ipu_model.report.graph import arrays_wanted, over_tiles, tiles_of
from ipu_model.report.model import Document
from ipu_model.report.programs import Leaf, programs

TILE_CYCLES = {
    "DoExchange": "doExchange",
    "GlobalExchange": "globalExchange",
    "StreamCopy": "streamCopy",
    "Sync": "sync",
}


def execution_profile(report: Document, *, by_tile: bool | None = None) -> dict[str, Any]:
    """The tree under ``executionProfile``; cycles are modelled, hence the profiler mode.

    Arrays over all tiles for each step (`by_tile`) are there by default where they are not too many.
    """
    nodes = [(k, n.leaf) for k, n in enumerate(programs(report)) if n.leaf]
    tiles = report.target["tilesPerIPU"]
    sums = dict.fromkeys(("activeCompute", "compute", "copySharedStructure", *TILE_CYCLES.values()), 0.0)
    steps, clock = [], 0.0
    arrays = arrays_wanted(report, 2 * len(nodes), by_tile)
    for index, leaf in nodes:
        whole = leaf.cycles * leaf.runs
        if leaf.type == "OnTileExecute":
            sums["activeCompute"] += whole * leaf.part.balance * leaf.part.tiles
            sums["compute"] += whole * tiles
        else:
            sums[TILE_CYCLES[leaf.type]] += whole * tiles
        entry = _step(index, leaf, clock, whole, tiles)
        steps.append(entry | _by_tile(report, leaf, entry) if arrays else entry)
        clock += whole
    return {
        "profilerMode": "IPU_MODEL",
        "programTrace": [index for index, _ in nodes],
        "simulation": {"cycles": report.schedule.cycles, "tileCycles": sums, "steps": steps},
    }


def _by_tile(report: Document, leaf: Leaf, entry: dict[str, Any]) -> dict[str, Any]:
    """Cycles of each tile: of compute the mean of the tiles in use, of everything else those of the slowest."""
    active = over_tiles(report, entry.get("activeCycles", entry["cycles"]), tiles_of(report, leaf), leaf.step.ipu)
    return {"activeCyclesByTile": active, "cyclesByTile": active}


def _step(index: int, leaf: Leaf, start: float, cycles: float, tiles: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": leaf.type,
        "name": leaf.name,
        "program": index,
        "ipu": leaf.step.ipu,
        "runs": leaf.runs,
        "cycles": cycles,
        "cyclesFrom": start,
        "cyclesTo": start + cycles,
        "cyclesOverlapped": 0.0,
    }
    if leaf.type == "OnTileExecute":
        active = leaf.part.tiles
        entry |= {
            "activeCycles": cycles * leaf.part.balance,
            "activeTiles": active,
            "activeTileBalance": leaf.part.balance,
            "tileBalance": leaf.part.balance * active / tiles,
            "activeCyclesByVertexType": {leaf.part.vertex: cycles * leaf.part.balance * active},
            "vertices": leaf.part.vertices,
        }
    elif leaf.type != "Sync":
        entry |= {"totalData": leaf.part.received * leaf.runs, "dataTransferred": leaf.part.received * leaf.runs,
                  "dataBalance": leaf.part.balance}  # fmt: skip
    return entry
