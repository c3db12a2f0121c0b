"""What the page shows, prepared: downsampled curves, grouped rows, comparisons."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import Any

from ipu_model.report.html import charts, formats
from ipu_model.report.model import Document, StepRow

MOST_ROWS = 1500
MOST_BARS = 1600
CURVE_POINTS = 700
KINDS = ("compute", "exchange", "sync", "inter_ipu", "host")
KIND_NAMES = {"compute": "compute", "exchange": "exchange", "sync": "sync", "inter_ipu": "between IPUs", "host": "host"}


def view(report: Document, compare: Document | None) -> dict[str, Any]:
    """Everything the template needs that is not in the report as such."""
    m, live, bars = report.memory, _liveness(report), _bars(report)
    return {
        "cards": _cards(report),
        "kinds": KINDS,
        "kind_names": KIND_NAMES,
        "phases": [(name, c) for name, c in report.phases.items() if c.total],
        "sorted_tiles": _sorted_tiles(report),
        "liveness": live,
        "groups": _groups(report),
        "left_out": max(0, len(report.operations) - MOST_ROWS),
        "bars": bars,
        "peak_per_cycle": report.target["peakFlops"] / report.target["clockFrequency"],
        "at_peak": [v for v in m.variables if v.always or v.first <= m.peak_step <= v.last][:25],
        "compare": _compare(report, compare) if compare else None,
        "data": _data(report) | _hover(live) | {"end": bars["end"]},
    }


def _cards(r: Document) -> list[tuple[str, str, str]]:
    peak = r.target["peakFlops"] * r.target["ipusPerReplica"] * r.schedule.seconds
    worst, limit = r.memory.max_tile, r.memory.bytes_per_tile
    tiles = f"{formats.plural(r.target['ipusPerReplica'], 'IPU')} of {r.target['tilesPerIPU']:,} tiles"
    rate = f"{formats.count(r.schedule.samples_per_second)} samples/s" if r.schedule.samples_per_second else "per run"
    return [
        ("Cycles", formats.count(r.total_cycles), f"{formats.seconds(r.schedule.seconds)}, {rate}"),
        ("Arithmetic", f"{formats.count(r.cycles.flops)}FLOP", f"{formats.percent(r.cycles.flops, peak)} of peak"),
        ("Fullest tile", formats.size(worst), f"{formats.percent(worst, limit)} of {formats.size(limit)}"),
        ("All tiles", formats.size(r.memory.total), tiles),
        ("Steps", formats.count(len(r.steps)), f"{formats.plural(len(r.operations), 'operation')}, {r.schedule.kind}"),
    ]  # fmt: skip


def _data(r: Document) -> dict[str, Any]:
    """The figures behind the charts, for the script and for tests."""
    m = r.memory
    runs = [
        (k, len(list(g)))
        for k, g in groupby(zip(m.always_by_tile, m.not_always_by_tile, m.including_gaps_by_tile, strict=True))
    ]
    return {
        "name": r.name,
        "cycles": r.total_cycles,
        "clock": r.target["clockFrequency"],
        "tilesPerIpu": m.tiles_per_ipu,
        "bytesPerTile": m.bytes_per_tile,
        "heat": charts.HEAT,
        "over": charts.OVER,
        "liveLeft": charts.LIVE_LEFT,
        "tiles": [[*row, n] for row, n in runs],
        "categories": {name: sum(by) for name, by in m.categories.items()},
    }


def _hover(live: dict[str, Any]) -> dict[str, Any]:
    """What the script shows of the liveness under the pointer: names once, and their numbers by stretch."""
    names = list(dict.fromkeys(live["names"]))
    index = {name: k for k, name in enumerate(names)}
    return {
        "live": {
            "names": names,
            "always": live["always"],
            "points": [[at, size, index[n]] for (at, size), n in zip(live["points"], live["names"], strict=True)],
            "steps": live["steps"],
        }
    }


def _sorted_tiles(r: Document) -> list[tuple[float, int, int, int]]:
    """(share of tiles, always live, total, with gaps), fullest first, at most `CURVE_POINTS` points."""
    m = r.memory
    rows = sorted(zip(m.including_gaps_by_tile, m.total_by_tile, m.always_by_tile, strict=True), reverse=True)
    step = max(1, len(rows) // CURVE_POINTS)
    picked = [*range(0, len(rows), step), len(rows) - 1]
    points = ((k / max(1, len(rows) - 1), rows[k]) for k in picked)
    return [(at, always, total, address) for at, (address, total, always) in points]


def _liveness(r: Document) -> dict[str, Any]:
    """Highest not-always-live bytes in each stretch of steps, and where the peak is."""
    total = [sum(s.not_always_live) for s in r.steps]
    width = max(1, -(-len(total) // CURVE_POINTS))
    tops = [max(range(k, min(k + width, len(total))), key=total.__getitem__) for k in range(0, len(total), width)]
    points = [(k, total[top]) for k, top in zip(range(0, len(total), width), tops, strict=True)]
    return {
        "points": points,
        "names": [r.steps[top].node or r.steps[top].name for top in tops],
        "steps": len(total),
        "always": sum(r.memory.always_by_tile),
        "peak": r.memory.peak_step,
        "peak_bytes": total[r.memory.peak_step] if total else 0,
        "phases": _stretches(r.steps),
    }


def _stretches(steps: tuple[StepRow, ...]) -> list[tuple[str, int, int]]:
    """Stretches of the program by phase, short interruptions left out."""
    found, at = [], 0
    for phase, rows in groupby(steps, key=lambda s: s.phase):
        n = len(list(rows))
        if n > len(steps) / 100:
            found.append((phase, at, at + n))
        at += n
    return found


def _groups(r: Document) -> list[dict[str, Any]]:
    """Operations under their outermost scope, dearest scope first; sums are over all, the dearest are listed."""
    by: dict[str, list[Any]] = defaultdict(list)
    dearest = sorted(r.operations, key=lambda o: -o.cycles.total)
    for o in dearest:
        by[_group_name(o.node)].append(o)
    listed = {id(o) for o in dearest[:MOST_ROWS]}
    rows = []
    for name, members in by.items():
        rows.append(
            {
                "name": name,
                "operations": [o for o in members if id(o) in listed],
                "cycles": sum(o.cycles.total for o in members),
                "flops": sum(o.cycles.flops for o in members),
                "bytes": sum(o.output_bytes for o in members),
                "temporary": max(o.peak_temporary for o in members),
            }
        )
    return sorted(rows, key=lambda g: -g["cycles"])


def _group_name(node: str) -> str:
    head, _, rest = node.strip("/").partition("/")
    return head if rest else "(top)"


def _bars(r: Document) -> dict[str, Any]:
    """The timeline: neighbouring steps of one node as one bar, the shortest left out when there are too many."""
    bars: list[list[Any]] = []
    for s in r.steps:
        length = s.cycles.total * s.trips
        if not length:
            continue
        name = s.node or s.name
        if bars and bars[-1][0] == name and bars[-1][1] == s.phase and bars[-1][2] == s.ipu:
            bars[-1][4] = s.start + length - bars[-1][3]
            bars[-1][5] = [a + getattr(s.cycles, k) * s.trips for a, k in zip(bars[-1][5], KINDS, strict=True)]
        else:
            bars.append([name, s.phase, s.ipu, s.start, length, [getattr(s.cycles, k) * s.trips for k in KINDS]])
    longest = sorted(bars, key=lambda b: -b[4])[:MOST_BARS]
    kept = {id(b) for b in longest}
    end = max((b[3] + b[4] for b in bars), default=1.0)
    return {"rows": [b for b in bars if id(b) in kept], "end": end, "left_out": len(bars) - len(longest)}


def _compare(new: Document, old: Document) -> dict[str, Any]:
    """Differences from an earlier report, by figure and by operation."""
    figures = [
        ("Cycles of a run", old.total_cycles, new.total_cycles, "count"),
        *((f"... {KIND_NAMES[k]}", getattr(old.cycles, k), getattr(new.cycles, k), "count") for k in KINDS),
        ("Fullest tile", old.memory.max_tile, new.memory.max_tile, "bytes"),
        ("All tiles", old.memory.total, new.memory.total, "bytes"),
    ]
    before = {(o.node, o.phase): o.cycles.total for o in old.operations}
    after = {(o.node, o.phase): o.cycles.total for o in new.operations}
    moved = [(k, before.get(k, 0.0), after.get(k, 0.0)) for k in {**before, **after}]
    moved.sort(key=lambda row: -abs(row[2] - row[1]))
    return {
        "name": old.name,
        "figures": [f for f in figures if f[1] or f[2]],
        "moved": [m for m in moved if m[1] != m[2]][:40],
        "sorted_tiles": _sorted_tiles(old),
    }
