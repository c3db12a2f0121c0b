"""Poplar's graph profile: what the compiler knows before anything runs. Field names are Poplar's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipu_model.report.model import Report, Variable
from ipu_model.report.programs import programs

NON_INTERLEAVED, INTERLEAVED, OVERFLOWED = "nonInterleaved", "interleaved", "overflowed"


def graph_profile(report: Report) -> dict[str, Any]:
    """The tree under ``graphProfile``; plain numbers, strings, lists and dicts."""
    nodes = programs(report)
    sets = [n.leaf for n in nodes if n.leaf and n.type == "OnTileExecute"]
    exchanges = [n.leaf for n in nodes if n.leaf and n.type in ("DoExchange", "GlobalExchange")]
    types = {v.name: k for k, v in enumerate(report.vertices)}
    documents = [n.document() for n in nodes]
    for kind, listed in (("computeset", sets), ("exchange", exchanges)):
        index = {id(leaf): k for k, leaf in enumerate(listed)}
        for n, d in zip(nodes, documents, strict=True):
            if n.leaf is not None and id(n.leaf) in index:
                d[kind] = index[id(n.leaf)]
    return {
        "target": _target(report),
        "optimizationInfo": {"numFusedOperations": sum(s.fused for s in report.steps)},
        "graph": {
            "numComputeSets": len(sets),
            "numEdges": sum(leaf.part.vertices * 3 for leaf in sets),
            "numVars": report.memory.variable_count,
            "numVertices": sum(leaf.part.vertices for leaf in sets),
        },
        "vertexTypes": {
            "names": [v.name for v in report.vertices],
            "sizes": [v.state_bytes // max(1, v.instances) for v in report.vertices],
        },
        "computeSets": {
            "names": [leaf.name for leaf in sets],
            "vertexCounts": [[leaf.part.vertices] for leaf in sets],
            "vertexTypes": [[types.get(leaf.part.vertex, -1)] for leaf in sets],
            "estimatedCycles": [leaf.cycles for leaf in sets],
        },
        "exchanges": {
            "names": [leaf.name for leaf in exchanges],
            "bytesReceived": [leaf.part.received for leaf in exchanges],
            "cycles": [leaf.cycles for leaf in exchanges],
        },
        "programs": documents,
        "functions": [],
        "controlProgram": [0],
        "memory": _memory(report),
    }


def _target(report: Report) -> dict[str, Any]:
    t = report.target
    names = ("type", "architecture", "bytesPerIPU", "bytesPerTile", "clockFrequency", "numIPUs", "tilesPerIPU",
             "numTiles", "totalMemory", "numReplicas")  # fmt: skip
    return {n: t[n] for n in names}


def _memory(report: Report) -> dict[str, Any]:
    m = report.memory
    by_category = {}
    for name, by_tile in m.categories.items():
        fits = [min(b, m.bytes_per_tile) for b in by_tile]
        zeros = [0] * len(by_tile)
        by_category[name] = {
            NON_INTERLEAVED: {"nonOverlapped": fits, "overlapped": zeros},
            INTERLEAVED: {"nonOverlapped": zeros, "overlapped": zeros},
            OVERFLOWED: {"nonOverlapped": [b - f for b, f in zip(by_tile, fits, strict=True)], "overlapped": zeros},
        }
    return {
        "byTile": {"total": list(m.total_by_tile), "totalIncludingGaps": list(m.including_gaps_by_tile)},
        "byCategory": by_category,
        "byVertexType": {
            "codeBytes": [v.code_bytes for v in report.vertices],
            "vertexDataBytes": [v.state_bytes for v in report.vertices],
        },
        "liveness": {
            "alwaysLive": {
                "bytesByTile": list(m.always_by_tile),
                "variables": [_variable(v) for v in m.variables if v.always],
            },
            "notAlwaysLive": {
                "maxBytesByTile": list(m.not_always_by_tile),
                "maxBytesAtTile": max(m.not_always_by_tile, default=0),
                "steps": [{"name": s.name, "bytes": sum(s.not_always_live)} for s in report.steps],
                "variables": [_variable(v) for v in m.variables if not v.always],
            },
        },
    }


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


def save_cbor(tree: dict[str, Any], path: str | Path) -> Path:
    """The same tree in binary."""
    path = Path(path)
    path.write_bytes(encode_cbor(tree))
    return path


def encode_cbor(tree: dict[str, Any]) -> bytes:
    import cbor2

    return cbor2.dumps(tree)
