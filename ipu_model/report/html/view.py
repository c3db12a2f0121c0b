"""The data of the page, prepared from a report: downsampled curves, grouped rows, comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ipu_model.cost import CYCLE_FIELDS as KINDS
from ipu_model.report.compare import compare as comparison
from ipu_model.report.html import charts, formats, help_texts
from ipu_model.report.html.tree import tree
from ipu_model.report.model import Document, StepRow

MOST_BARS = 1600
CURVE_POINTS = 700
KIND_NAMES = {"compute": "compute", "exchange": "exchange", "sync": "sync", "inter_ipu": "between IPUs", "host": "host"}
COLUMNS = (  # key of the script, heading, class
    ("path", "Operation", ""),
    ("operator", "Operator", ""),
    ("phase", "Phase", ""),
    ("cycles", "Cycles", "n"),
    ("share", "Share", "n"),
    ("kinds", "Of which", ""),
    ("flops", "FLOP", "n"),
    ("rate", "Of peak", "n"),
    ("bytes", "Output", "n"),
    ("temporary", "Temporary per tile", "n"),
)


def view(report: Document, compare: Document | None) -> dict[str, Any]:
    """The template's variables that are not fields of the report."""
    m, live, bars = report.memory, _liveness(report), _bars(report)
    phases = [(name, c) for name, c in report.phases.items() if c.total]
    return {
        "cards": _cards(report),
        "kinds": KINDS,
        "kind_names": KIND_NAMES,
        "phases": phases,
        "side_by_side": _side_by_side(report),
        "phase_legend": [(f"p-{name}", name) for name, _ in phases],
        "kind_legend": [(f"k-{k}", KIND_NAMES[k]) for k in KINDS if any(getattr(c, k) for _, c in phases)],
        "sorted_tiles": _sorted_tiles(report),
        "liveness": live,
        "bars": bars,
        "help": help_texts.texts(),
        "columns": COLUMNS,
        "at_peak": [v for v in m.variables if v.always or v.first <= m.peak_step <= v.last][:25],
        "compare": _compared(report, compare) if compare else None,
        "data": _data(report) | _tile_contents(report) | _hover(live) | {"end": bars["end"], "tree": tree(report)},
    }


def _cards(r: Document) -> list[tuple[str, str, str, str]]:
    """Name of the help, title, value and note of each."""
    peak = r.target["peakFlops"] * r.target["ipusPerReplica"] * r.schedule.seconds
    worst, limit = r.memory.max_tile, r.memory.bytes_per_tile
    tiles = f"{formats.plural(r.target['ipusPerReplica'], 'IPU')} of {r.target['tilesPerIPU']:,} tiles"
    share = f"{formats.percent(r.cycles.flops, peak)} of peak"
    operations = f"{formats.plural(len(r.operations), 'operation')}, {r.schedule.kind}"
    rate = f"{formats.count(r.schedule.samples_per_second)} samples/s" if r.schedule.samples_per_second else "per run"
    return [
        ("cycles", "Cycles", formats.count(r.total_cycles), f"{formats.seconds(r.schedule.seconds)}, {rate}"),
        ("arithmetic", "Arithmetic", _amount(r.cycles.flops, "FLOP"), share),
        ("fullest", "Fullest tile", formats.size(worst), f"{formats.percent(worst, limit)} of {formats.size(limit)}"),
        ("all", "All tiles", formats.size(r.memory.total), tiles),
        ("steps", "Steps", formats.count(len(r.steps)), operations),
    ]  # fmt: skip


def _amount(value: float, unit: str) -> str:
    """A count of a unit: the prefix stands at the unit, a space before it."""
    text = formats.count(value)
    return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def _side_by_side(r: Document) -> str:
    """Why the phases add up to more cycles than a run takes; empty where they do not."""
    work, run = sum(c.total for c in r.phases.values()), r.total_cycles
    if work <= run * 1.0001:
        return ""
    ipus, hidden = r.target["ipusPerReplica"], formats.count(r.schedule.overlapped)
    why = [f"{ipus} IPUs work side by side"] if ipus > 1 else []
    why += [f"{hidden} of host traffic run behind other work"] if r.schedule.overlapped else []
    return f"{formats.count(work)} cycles of work in a run of {formats.count(run)}: {' and '.join(why)}." if why else ""


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
        "ipus": r.target["ipusPerReplica"],
        "peakPerCycle": r.target["peakFlops"] / r.target["clockFrequency"],
        "kindNames": KIND_NAMES,
        "cell": charts.CELL,
        "heat": charts.HEAT,
        "over": charts.OVER,
        "liveLeft": charts.LIVE_LEFT,
        "tiles": [[*row, n] for row, n in runs],
        "categories": {name: sum(by) for name, by in m.categories.items()},
    }


def _tile_contents(r: Document) -> dict[str, Any]:
    """Variables and vertex types, for the list of what one tile holds."""
    rows = [
        (v.name, v.kind, v.shape, v.ipu, v.tiles, v.bytes, -1 if v.always else v.first, v.last)
        for v in r.memory.variables
    ]
    return {
        "variables": rows,
        "moreVariables": r.memory.variable_count - len(rows),
        "vertices": [(v.name, v.instances, v.tiles, v.code_bytes, v.state_bytes) for v in r.vertices],
    }


def _hover(live: dict[str, Any]) -> dict[str, Any]:
    """Data for the liveness chart's tooltips: a list of names, and their indices for each stretch."""
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
        "names": [r.steps[top].label for top in tops],
        "steps": len(total),
        "always": sum(r.memory.always_by_tile),
        "peak": r.memory.peak_step,
        "peak_bytes": total[r.memory.peak_step] if total else 0,
        "phases": _stretches(r.steps),
    }


def _stretches(steps: tuple[StepRow, ...]) -> list[tuple[str, int, int]]:
    """Stretches of the program by phase, short interruptions left out."""
    found: list[tuple[str, int, int]] = []
    at = 0
    for phase, rows in groupby(steps, key=lambda s: s.phase):
        n = len(list(rows))
        if n > len(steps) / 100:
            found.append((phase, at, at + n))
        at += n
    return found


@dataclass
class Bar:
    """A stretch of the timeline: neighbouring steps of one operation, or of several that are too short to be seen."""

    name: str
    phase: str
    ipu: int
    start: float
    length: float
    kinds: list[float]
    others: int = 0

    def takes(self, other: Bar) -> None:
        """Grow by the stretch that follows."""
        self.length = other.start + other.length - self.start
        self.kinds = [a + b for a, b in zip(self.kinds, other.kinds, strict=True)]

    @property
    def label(self) -> str:
        """Name of the operation, with the number of others that share the bar."""
        return f"{self.name} and {formats.plural(self.others, 'other')}" if self.others else self.name


def _bars(r: Document) -> dict[str, Any]:
    """The timeline: neighbouring steps of one node as one bar, and neighbours that are too short to be seen as well."""
    bars: list[Bar] = []
    for s in r.steps:
        length = s.cycles.total * s.trips
        if not length:
            continue
        new = Bar(s.label, s.phase, s.ipu, s.start, length, [getattr(s.cycles, k) * s.trips for k in KINDS])
        last = bars[-1] if bars else None
        if last and (last.name, last.phase, last.ipu) == (new.name, new.phase, new.ipu):
            last.takes(new)
        else:
            bars.append(new)
    end = max((b.start + b.length for b in bars), default=1.0)
    return {"rows": _visible(bars, end / MOST_BARS) if len(bars) > MOST_BARS else bars, "end": end}


def _visible(bars: list[Bar], least: float) -> list[Bar]:
    """Neighbours joined until they are `least` long, where they share a phase and an IPU."""
    found: list[Bar] = []
    for b in bars:
        last = found[-1] if found else None
        joined = last and (last.phase, last.ipu) == (b.phase, b.ipu) and b.start + b.length - last.start <= least
        if last and joined:
            last.takes(b)
            last.others += 1
        else:
            found.append(b)
    return found


def _compared(new: Document, old: Document) -> dict[str, Any]:
    """Differences from an earlier report, and its curve of tiles."""
    found = comparison(new, old)
    unit = "" if found.unit == "cycles" else f" [{found.unit}]"
    figures = [(row, "count") for row in found.cycles] + [(row, "bytes") for row in found.memory]
    tables = (
        (f"Figures{unit}", "Figure", figures),
        (f"Operations that changed most{unit}", "Operation", [(row, "count") for row in found.operations]),
        ("Variables that changed most", "Variable", [(row, "bytes") for row in found.variables]),
    )
    return {"name": found.name, "tables": tables, "sorted_tiles": _sorted_tiles(old)}
