"""A Chrome/Perfetto trace of one run: a process per IPU, a track per kind of step, one for the nodes, and memory.

A trace with more events than a browser can open leaves out the shortest ones, and says how many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipu_model.report.model import Document
from ipu_model.report.programs import leaves
from ipu_model.whole_files import write_whole

MOST_EVENTS = 200_000
TRACKS = {"node": 0, "OnTileExecute": 1, "DoExchange": 2, "Sync": 3, "GlobalExchange": 4, "StreamCopy": 5}


def events(report: Document, most: int = MOST_EVENTS) -> list[dict[str, Any]]:
    """Trace events, times in microseconds at the clock of the target; loops are folded into one stretch.

    There are at most `most` stretches and memory counters; beyond it the shortest stretches, and counters between
    others, are left out. An event named ``"left out"`` tells how many.
    """
    per_cycle = 1e6 / report.target["clockFrequency"]
    stretches, counters = list(_stretches(report, per_cycle)), _memory(report, per_cycle)
    kept = stretches if len(stretches) <= most // 2 else sorted(stretches, key=lambda e: -e["dur"])[: most // 2]
    every = -(-len(counters) // max(1, most // 2)) or 1
    left_out = len(stretches) - len(kept) + len(counters) - len(counters[::every])
    told = [_left_out_event(left_out)] if left_out else []
    return [*_names(report), *told, *sorted(kept, key=lambda e: e["ts"]), *counters[::every]]


def _names(report: Document) -> Iterator[dict[str, Any]]:
    for ipu in range(report.target["ipusPerReplica"]):
        yield {"ph": "M", "pid": ipu, "name": "process_name", "args": {"name": f"IPU {ipu}"}}
        for name, track in TRACKS.items():
            yield {"ph": "M", "pid": ipu, "tid": track, "name": "thread_name", "args": {"name": name}}


def _left_out_event(left_out: int) -> dict[str, Any]:
    """A mark at the start of the trace."""
    return {"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": 0, "name": f"left out: {left_out:,} short events"}


def _stretches(report: Document, per_cycle: float) -> Iterator[dict[str, Any]]:
    """Each step, and each of its programs."""
    for step in report.steps:
        if not step.trips or not step.cycles.total:
            continue
        at = step.start
        args = {"primitive": step.primitive, "shape": step.shape, "trips": step.trips}
        whole = step.cycles.total * step.trips
        yield _event(step.label, step.phase, step.ipu, 0, at, whole, per_cycle, args)
        for leaf in leaves(step):
            whole = leaf.cycles * leaf.runs
            args = {
                "vertex": leaf.part.vertex,
                "tiles": leaf.part.tiles,
                "bytes": leaf.part.received,
                "runs": leaf.runs,
            }
            yield _event(leaf.name, leaf.type, step.ipu, TRACKS[leaf.type], at, whole, per_cycle, args)
            at += whole


def _memory(report: Document, per_cycle: float) -> list[dict[str, Any]]:
    """A counter for each IPU: bytes that always live, and those alive while each of its steps runs."""
    tiles = report.memory.tiles_per_ipu
    found: list[dict[str, Any]] = []
    always = [
        sum(report.memory.always_by_tile[k * tiles : (k + 1) * tiles]) for k in range(report.target["ipusPerReplica"])
    ]
    for step in report.steps:
        if step.trips and step.not_always_live:
            args = {"always live": always[step.ipu], "not always live": step.not_always_live[step.ipu]}
            found.append(
                {"ph": "C", "pid": step.ipu, "name": "memory [bytes]", "ts": step.start * per_cycle, "args": args}
            )
    return found


def _event(
    name: str, category: str, ipu: int, track: int, at: float, cycles: float, per_cycle: float, args: dict[str, Any]
) -> dict[str, Any]:
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
    write_whole(path, json.dumps(document).encode())
    return path
