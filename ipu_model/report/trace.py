"""A Chrome/Perfetto trace of one run: a process per IPU, a track per kind of step and one for the nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ipu_model.report.model import Document
from ipu_model.report.programs import leaves

TRACKS = {"node": 0, "OnTileExecute": 1, "DoExchange": 2, "Sync": 3, "GlobalExchange": 4, "StreamCopy": 5}


def events(report: Document) -> list[dict[str, Any]]:
    """Trace events, times in microseconds at the clock of the target; loops are folded into one stretch."""
    found: list[dict[str, Any]] = []
    per_cycle = 1e6 / report.target["clockFrequency"]
    for ipu in range(report.target["ipusPerReplica"]):
        found.append({"ph": "M", "pid": ipu, "name": "process_name", "args": {"name": f"IPU {ipu}"}})
        found += [
            {"ph": "M", "pid": ipu, "tid": t, "name": "thread_name", "args": {"name": n}} for n, t in TRACKS.items()
        ]
    for step in report.steps:
        if not step.trips or not step.cycles.total:
            continue
        at = step.start
        args = {"primitive": step.primitive, "shape": step.shape, "trips": step.trips}
        whole = step.cycles.total * step.trips
        found.append(_event(step.node or step.name, step.phase, step.ipu, 0, at, whole, per_cycle, args))
        for leaf in leaves(step):
            whole = leaf.cycles * leaf.runs
            args = {
                "vertex": leaf.part.vertex,
                "tiles": leaf.part.tiles,
                "bytes": leaf.part.received,
                "runs": leaf.runs,
            }
            found.append(_event(leaf.name, leaf.type, step.ipu, TRACKS[leaf.type], at, whole, per_cycle, args))
            at += whole
    return found


def _event(
    name: str, category: str, ipu: int, track: int, at: float, cycles: float, per_cycle: float, args: dict
) -> dict:
    return {"ph": "X", "name": name, "cat": category, "pid": ipu, "tid": track, "ts": at * per_cycle,
            "dur": cycles * per_cycle, "args": {"cycles": cycles, **args}}  # fmt: skip


def save(report: Document, path: str | Path) -> Path:
    """Write the trace as JSON that Perfetto and chrome://tracing open."""
    path = Path(path)
    document = {
        "traceEvents": events(report),
        "displayTimeUnit": "ns",
        "otherData": {"name": report.name, "modelled": True},
    }
    path.write_text(json.dumps(document))
    return path
