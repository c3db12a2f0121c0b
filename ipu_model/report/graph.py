"""Poplar's graph profile, with what is known at compile time. Field names are Poplar's.

Replicas are alike: arrays by tile hold one replica after the other. Additions of ours (`bytesReceived`, `tiles`,
`codeBytes`, the span of a variable) are single numbers where Poplar has arrays over all tiles.
"""

from __future__ import annotations

import itertools
from typing import Any

from ipu_model.memory.code import CONTROL_BYTES_PER_STEP, GLOBAL_EXCHANGE_BYTES, HOST_EXCHANGE_BYTES, exchange_code
from ipu_model.report.model import Document, StepRow, Variable
from ipu_model.report.programs import Leaf, Node, programs

NON_INTERLEAVED, INTERLEAVED, OVERFLOWED = "nonInterleaved", "interleaved", "overflowed"
MOST_BY_TILE = 4_000_000  # numbers in all arrays over tiles of exchanges or steps; beyond it the arrays are left out
EDGES_PER_VERTEX, EDGE_POINTER_BYTES = 3, 4


def graph_profile(report: Document, *, by_tile: bool | None = None) -> dict[str, Any]:
    """The tree under ``graphProfile``; plain numbers, strings, lists and dicts.

    Arrays over all tiles for each exchange (`by_tile`) are there by default where they are not too many.
    """
    nodes = programs(report)
    sets = [n.leaf for n in nodes if n.leaf and n.type == "OnTileExecute"]
    moves = [n.leaf for n in nodes if n.leaf and n.type in ("DoExchange", "GlobalExchange", "StreamCopy")]
    types = {v.name: k for k, v in enumerate(report.vertices)}
    instances = [[[leaf.part.vertices, types[leaf.part.vertex]]] if leaf.part.vertex in types else [] for leaf in sets]
    return {
        "target": _target(report),
        "optimizationInfo": {"numFusedOperations": sum(s.fused for s in report.steps)},
        "graph": {
            "numComputeSets": len(sets),
            "numEdges": sum(leaf.part.vertices * EDGES_PER_VERTEX for leaf in sets),
            "numVars": report.memory.variable_count,
            "numVertices": sum(leaf.part.vertices for leaf in sets),
        },
        "vertexTypes": {
            "names": [v.name for v in report.vertices],
            "sizes": [v.state_bytes // max(1, v.instances) for v in report.vertices],
        },
        "computeSets": {
            "names": [leaf.name for leaf in sets],
            "vertexCounts": [[n for n, _ in rows] for rows in instances],
            "vertexTypes": [[t for _, t in rows] for rows in instances],
            "estimatedCycles": [leaf.cycles for leaf in sets],
        },
        "exchanges": _exchanges(report, moves, by_tile),
        "programs": _programs(report, nodes, sets, moves),
        "functions": [],
        "controlProgram": [0],
        "memory": _memory(report, nodes),
    }


def arrays_wanted(report: Document, rows: int, by_tile: bool | None) -> bool:
    """Whether each of `rows` gets an array over all tiles."""
    return rows * report.target["numTiles"] <= MOST_BY_TILE if by_tile is None else by_tile


def tiles_of(report: Document, leaf: Leaf) -> int:
    """Tiles that take part; a transfer that names none reaches all."""
    per = report.target["tilesPerIPU"]
    return min(leaf.part.tiles, per) or per


def over_tiles(report: Document, value: float, used: int, ipu: int) -> list[float]:
    """The same value on the first tiles of an IPU of every replica, 0 elsewhere."""
    per, ipus = report.target["tilesPerIPU"], report.target["ipusPerReplica"]
    return ([0] * (per * ipu) + [value] * used + [0] * (per * (ipus - ipu) - used)) * report.target["numReplicas"]


def _target(report: Document) -> dict[str, Any]:
    t = report.target
    names = ("type", "architecture", "bytesPerIPU", "bytesPerTile", "clockFrequency", "numIPUs", "tilesPerIPU",
             "numTiles", "totalMemory", "numReplicas")  # fmt: skip
    return {n: t[n] for n in names} | {
        "minSyncDelay": t.get("minSyncDelay", 0), "relativeSyncDelayByTile": [0] * t["tilesPerIPU"],
    }  # fmt: skip


def _code(leaf: Leaf) -> int:
    """Bytes on each tile in use of the code of one program, were it alone."""
    if leaf.type == "StreamCopy":
        return HOST_EXCHANGE_BYTES
    if leaf.type == "GlobalExchange":
        return GLOBAL_EXCHANGE_BYTES
    if leaf.type == "DoExchange":
        return round(exchange_code(leaf.part.received, max(1, leaf.part.tiles)))
    return CONTROL_BYTES_PER_STEP if leaf.type == "OnTileExecute" else 0


def _exchanges(report: Document, moves: list[Leaf], by_tile: bool | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "names": [leaf.name for leaf in moves],
        "bytesReceived": [leaf.part.received for leaf in moves],
        "cycles": [leaf.cycles for leaf in moves],
        "codeBytes": [_code(leaf) for leaf in moves],
        "tiles": [tiles_of(report, leaf) for leaf in moves],
    }
    if arrays_wanted(report, len(moves), by_tile):
        each = [leaf.part.received / tiles_of(report, leaf) for leaf in moves]
        for name, values in (
            ("bytesReceivedByTile", each),
            ("bytesSentByTile", each),
            ("cyclesByTile", found["cycles"]),
            ("codeBytesByTile", found["codeBytes"]),
        ):
            rows = zip(moves, values, strict=True)
            found[name] = [over_tiles(report, v, tiles_of(report, leaf), leaf.step.ipu) for leaf, v in rows]
    return found


def _programs(report: Document, nodes: list[Node], sets: list[Leaf], moves: list[Leaf]) -> list[dict[str, Any]]:
    index = {id(leaf): ("computeset", k) for k, leaf in enumerate(sets)}
    index |= {id(leaf): ("exchange", k) for k, leaf in enumerate(moves)}
    documents = [n.document() for n in nodes]
    for n, d in zip(nodes, documents, strict=True):
        if n.leaf is None:
            continue
        if id(n.leaf) in index:
            kind, k = index[id(n.leaf)]
            d[kind] = k
        d |= {"codeBytes": _code(n.leaf), "codeTiles": tiles_of(report, n.leaf)}
    return documents


def _memory(report: Document, nodes: list[Node]) -> dict[str, Any]:
    m, copies = report.memory, report.target["numReplicas"]
    return {
        "byTile": {
            "total": [*m.total_by_tile] * copies,
            "totalIncludingGaps": [*m.including_gaps_by_tile] * copies,
        },
        "byCategory": {name: _regions(by, m.bytes_per_tile, copies) for name, by in m.categories.items()},
        "byVertexType": _by_vertex_type(report),
        "liveness": {
            "alwaysLive": {
                "bytesByTile": [*m.always_by_tile] * copies,
                "variables": [_variable(v) for v in m.variables if v.always],
            },
            "notAlwaysLive": {
                "maxBytesByTile": [*m.not_always_by_tile] * copies,
                "maxBytesAtTile": max(m.not_always_by_tile, default=0),
                "steps": _steps(report, nodes),
                "variables": [*(_variable(v) for v in m.variables if not v.always), *_temporaries(report)],
            },
        },
    }


def _regions(by_tile: tuple[int, ...], limit: int, copies: int) -> dict[str, Any]:
    fits = [min(b, limit) for b in by_tile] * copies
    beyond = [b - f for b, f in zip([*by_tile] * copies, fits, strict=True)]
    zeros = [0] * len(fits)
    return {
        NON_INTERLEAVED: {"nonOverlapped": fits, "overlapped": zeros},
        INTERLEAVED: {"nonOverlapped": zeros, "overlapped": zeros},
        OVERFLOWED: {"nonOverlapped": beyond, "overlapped": zeros},
    }


def _by_vertex_type(report: Document) -> dict[str, list[int]]:
    """Bytes over all tiles; pointers to edges are part of a vertex's state."""
    rows, copies = report.vertices, report.target["numReplicas"]
    pointers = [min(v.state_bytes, v.instances * EDGES_PER_VERTEX * EDGE_POINTER_BYTES) * copies for v in rows]
    return {
        "codeBytes": [v.code_bytes * copies for v in rows],
        "vertexDataBytes": [v.state_bytes * copies - p for v, p in zip(rows, pointers, strict=True)],
        "descriptorBytes": [v.field_bytes * copies for v in rows],
        "edgePtrBytes": pointers,
        "copyPtrBytes": [0] * len(rows),
        "paddingBytes": [0] * len(rows),
    }


def _steps(report: Document, nodes: list[Node]) -> list[dict[str, Any]]:
    """Not-always-live bytes of each step, and its first program; a step that costs nothing has its sequence's."""
    first: dict[int, int] = {}
    for k, n in enumerate(nodes):
        if n.leaf is not None:
            first.setdefault(id(n.leaf.step), k)
    return [
        {"name": s.name, "program": first.get(id(s), s.frame), "bytes": sum(s.not_always_live)} for s in report.steps
    ]


def _variable(v: Variable) -> dict[str, Any]:
    """Name and size as Poplar has them; where and when it lives is ours."""
    return {
        "name": v.name,
        "size": v.bytes,
        "ipu": v.ipu,
        "tiles": v.tiles,
        "bytesOnFullestTile": v.bytes_on_fullest,
        "firstStep": v.first,
        "lastStep": v.last,
    }


def _temporaries(report: Document) -> list[dict[str, Any]]:
    """What a step needs beyond its variables, as one variable per step, evenly over its tiles."""
    held = _bytes_by_step(report)
    rows: list[dict[str, Any]] = []
    for k, step in enumerate(report.steps):
        size = step.not_always_live[step.ipu] - held[step.ipu][k] if step.not_always_live else 0
        tiles = min(max((p.tiles for p in step.parts), default=0), report.target["tilesPerIPU"])
        if tiles and size >= tiles:
            rows.append(_variable(_temporary(step, k, size, tiles)))
    return rows


def _temporary(step: StepRow, at: int, size: int, tiles: int) -> Variable:
    name = f"{step.name}/temporary"
    return Variable(name, "temporaries", "", size, -(-size // tiles), step.ipu, False, at, at, tiles)


def _bytes_by_step(report: Document) -> list[list[int]]:
    """Bytes of variables alive at each step, by IPU."""
    steps = len(report.steps)
    change = [[0] * (steps + 2) for _ in range(report.target["ipusPerReplica"])]
    for v in report.memory.variables:
        if not v.always:
            change[v.ipu][min(v.first, steps)] += v.bytes
            change[v.ipu][min(v.last, steps) + 1] -= v.bytes
    return [list(itertools.accumulate(row[:steps])) for row in change]
