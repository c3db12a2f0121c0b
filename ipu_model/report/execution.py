"""Poplar's execution profile, as its simulator writes it: every step with its cycles. Field names are Poplar's.

Loops are folded: a step appears once, with the cycles of all its runs and their number.
"""

from __future__ import annotations

from typing import Any

from ipu_model.report.model import Report
from ipu_model.report.programs import Leaf, programs

TILE_CYCLES = {
    "DoExchange": "doExchange",
    "GlobalExchange": "globalExchange",
    "StreamCopy": "streamCopy",
    "Sync": "sync",
}


def execution_profile(report: Report) -> dict[str, Any]:
    """The tree under ``executionProfile``; cycles are modelled, hence the profiler mode."""
    nodes = [(k, n.leaf) for k, n in enumerate(programs(report)) if n.leaf]
    tiles = report.target["tilesPerIPU"]
    sums = dict.fromkeys(("activeCompute", "compute", "copySharedStructure", *TILE_CYCLES.values()), 0.0)
    steps, clock = [], 0.0
    for index, leaf in nodes:
        whole = leaf.cycles * leaf.runs
        if leaf.type == "OnTileExecute":
            sums["activeCompute"] += whole * leaf.part.balance * leaf.part.tiles
            sums["compute"] += whole * tiles
        else:
            sums[TILE_CYCLES[leaf.type]] += whole * tiles
        steps.append(_step(index, leaf, clock, whole, tiles))
        clock += whole
    return {
        "profilerMode": "IPU_MODEL",
        "programTrace": [index for index, _ in nodes],
        "simulation": {"cycles": report.schedule.cycles, "tileCycles": sums, "steps": steps},
    }


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
