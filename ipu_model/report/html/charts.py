"""Charts as SVG text. Every mark carries its figure in a data attribute, so that pages can be checked without eyes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup, escape

from ipu_model.cost import CYCLE_FIELDS, Cost
from ipu_model.report.html import formats
from ipu_model.report.model import Document

COLUMNS, CELL = 64, 13
LIVE_LEFT = 74  # left margin of the liveness chart, which the page's script uses too
WIDE, HALF = 1150, 565  # a chart across the page, or beside another one


def _svg(width: float, height: float, body: str, label: str, kind: str) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" class="{kind}">{body}</svg>'
    )


def _rect(x: float, y: float, width: float, height: float, css: str, title: str = "", **data: object) -> str:
    """A bar with its figures as data attributes, and a tooltip."""
    facts = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
    tip = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.3f}" y="{y:.1f}" width="{width:.3f}" height="{height:.1f}"'
    return f'<rect class="{css}" {place}{facts}>{tip}</rect>'


def phases(report: Document, rows: Sequence[tuple[str, Cost]], kinds: Sequence[str], names: dict[str, str]) -> Markup:
    """One bar per phase, stacked by kind of cycle."""
    longest = max((c.total for _, c in rows), default=1.0)
    body: list[str] = []
    for k, (phase, c) in enumerate(rows):
        y, x = 6 + k * 40, 92.0
        body.append(f'<text x="84" y="{y + 18}" text-anchor="end">{phase}</text>')
        for kind in kinds:
            value = getattr(c, kind)
            width = value / longest * (WIDE - 240)
            if width > 0:
                title = f"{phase}: {formats.count(value)} cycles {names[kind]}"
                body.append(_rect(x, y, width, 26, f"k-{kind}", title, phase=phase, kind=kind, value=f"{value:.3f}"))
            x += width
        share = formats.percent(c.total, report.cycles.total)
        body.append(f'<text x="{x + 8:.1f}" y="{y + 18}" class="dim">{formats.count(c.total)} ({share})</text>')
    return _svg(WIDE, 12 + 40 * len(rows), "".join(body), "Cycles by phase and kind", "phases")


def heat_map(report: Document, ipu: int) -> Markup:
    """Tiles of one IPU in rows of 64, coloured by what is in use; equal neighbours are one rectangle."""
    m = report.memory
    every = list(zip(m.total_by_tile, m.including_gaps_by_tile, m.always_by_tile, strict=True))
    values = every[ipu * m.tiles_per_ipu : (ipu + 1) * m.tiles_per_ipu]
    top = heat_top(report)
    body: list[str] = []
    for row in range(0, len(values), COLUMNS):
        at = row
        for (value, _, _), cells in groupby(values[row : row + COLUMNS]):
            n = len(list(cells))
            x, y = (at - row) * CELL, row // COLUMNS * CELL
            size = f'x="{x}" y="{y}" width="{n * CELL - 1}" height="{CELL - 1}"'
            facts = f'data-tile="{at}" data-tiles="{n}" data-bytes="{value}"'
            body.append(f'<rect {size} fill="{_heat(value / top)}" {facts}/>')
            at += n
    height = -(-len(values) // COLUMNS) * CELL
    lines = "".join(
        f'<line x1="{x - 0.5}" x2="{x - 0.5}" y1="0" y2="{height}"/>' for x in range(CELL, COLUMNS * CELL, CELL)
    )
    body.append(f'<g class="cells">{lines}</g>')
    return _svg(COLUMNS * CELL, height, "".join(body), f"Memory of each tile of IPU {ipu}", "heat")


def heat_top(report: Document) -> int:
    """Bytes at the end of the colour scale: those of the fullest tile, at most what a tile holds."""
    return max(1, min(max(report.memory.total_by_tile), report.memory.bytes_per_tile))


HEAT = ((0.0, (68, 1, 84)), (0.25, (59, 82, 139)), (0.5, (33, 145, 140)), (0.75, (94, 201, 98)), (1.0, (253, 231, 37)))
OVER = ((1.0, (255, 138, 128)), (2.0, (160, 10, 40)))


def _heat(share: float) -> str:
    """A perceptually even colour scale up to the limit, reds beyond it, darkest from twice the limit."""
    scale = OVER if share > 1 else HEAT
    share = min(share, scale[-1][0])
    for (a, low), (b, high) in pairwise(scale):
        if share <= b:
            t = (share - a) / (b - a)
            return "#" + "".join(f"{round(x + t * (y - x)):02x}" for x, y in zip(low, high, strict=True))
    return "#fde725"


def heat_scale(report: Document) -> Markup:
    """Colours from an empty tile to a full one, and beyond when some tile holds too much."""
    limit, most = heat_top(report), max(report.memory.total_by_tile)
    stops = "".join(f'<stop offset="{at:g}" stop-color="{_heat(at)}"/>' for at, _ in HEAT)
    body = (
        f'<defs><linearGradient id="heat">{stops}</linearGradient></defs>'
        '<rect width="220" height="10" rx="2" fill="url(#heat)"/>'
        '<text x="0" y="25" class="dim">0</text>'
        f'<text x="220" y="25" text-anchor="end" class="dim" id="heat-top">{formats.size(limit)}</text>'
    )
    if most > limit:
        reds = "".join(f'<stop offset="{k / 4:g}" stop-color="{_heat(1.001 + k / 4)}"/>' for k in range(5))
        body += (
            f'<defs><linearGradient id="over">{reds}</linearGradient></defs>'
            '<rect x="226" width="90" height="10" rx="2" fill="url(#over)"/>'
            '<text x="316" y="25" text-anchor="end" class="dim">too much</text>'
        )
    return _svg(330, 28, body, "Colour scale of tile memory", "scale")


def _axis(top: float, width: float, height: float, left: float) -> str:
    """Horizontal lines at round sizes."""
    lines: list[str] = []
    for value in formats.round_sizes(top):
        y = 8 + height * (1 - value / top)
        lines.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        lines.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" class="dim">{formats.size(value)}</text>')
    return "".join(lines)


def _limit(top: float, limit: float, width: float, height: float, left: float) -> str:
    """The line of what a tile holds; drawn over the areas."""
    y = 8 + height * (1 - limit / top)
    text = f"a tile holds {formats.size(limit)}"
    line = f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class='
    return (
        f'{line}"limit-back"/>{line}"limit"/>'  # seen on the areas too
        f'<text x="{left + width}" y="{y - 5:.1f}" text-anchor="end" class="limit-text">{text}</text>'
    )


def _path(points: Sequence[tuple[float, float]], close_to: float | None = None) -> str:
    text = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if close_to is not None and points:
        text += f"L{points[-1][0]:.1f} {close_to:.1f}L{points[0][0]:.1f} {close_to:.1f}Z"
    return text


def sorted_profile(
    report: Document, points: Sequence[tuple[float, int, int, int]], other: Sequence[Any] | None = None
) -> Markup:
    """Bytes per tile, fullest first: always live below, the peak of the rest above, gaps on top."""
    left, width, height = 74, HALF - 80, 230
    limit = report.memory.bytes_per_tile
    top = max(limit, *(p[3] for p in points), *(p[3] for p in other or ((0, 0, 0, 0),))) * 1.04
    bottom = 8 + height

    def place(row: int, rows: Sequence[Any]) -> list[tuple[float, float]]:
        return [(left + p[0] * width, bottom - p[row] / top * height) for p in rows]

    body = _axis(top, width, height, left)
    body += f'<path d="{_path(place(3, points), bottom)}" class="area-gaps" data-max="{points[0][3]}"/>'
    body += f'<path d="{_path(place(2, points), bottom)}" class="area-not-always"/>'
    body += f'<path d="{_path(place(1, points), bottom)}" class="area-always"/>'
    if other:
        body += f'<path d="{_path(place(3, other))}" class="line-other"/>'
    body += _limit(top, limit, width, height, left)
    body += f'<text x="{left}" y="{bottom + 18}" class="dim">fullest tile</text>'
    body += f'<text x="{left + width}" y="{bottom + 18}" text-anchor="end" class="dim">emptiest tile</text>'
    return _svg(HALF, bottom + 26, body, "Bytes per tile, sorted", "profile")


def categories(report: Document) -> Markup:
    """Bytes over all tiles by category."""
    rows = [(name, sum(by)) for name, by in report.memory.categories.items()]
    rows = sorted((r for r in rows if r[1]), key=lambda r: -r[1])
    longest = max((n for _, n in rows), default=1)
    body: list[str] = []
    for k, (name, n) in enumerate(rows):
        y, width = 4 + k * 28, n / longest * (HALF - 320)
        body.append(f'<text x="168" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        body.append(_rect(176, y, width, 20, "bar", category=name, bytes=n))
        share = formats.percent(n, report.memory.total)
        body.append(f'<text x="{184 + width:.1f}" y="{y + 15}" class="dim">{formats.size(n)} ({share})</text>')
    return _svg(HALF, 8 + 28 * len(rows), "".join(body), "Memory by category", "categories")


def liveness(report: Document, live: dict[str, Any]) -> Markup:
    """Bytes over all tiles while each step runs."""
    left, width, height = LIVE_LEFT, WIDE - LIVE_LEFT - 10, 240
    points, steps, always = live["points"], max(1, live["steps"]), live["always"]
    top = max(1, always + max((b for _, b in points), default=0)) * 1.06
    bottom = 8 + height
    body = _axis(top, width, height, left)
    curve = [(left + k / steps * width, bottom - (always + b) / top * height) for k, b in points]
    if curve:
        curve.append((left + width, curve[-1][1]))
        body += f'<path d="{_path(curve, bottom)}" class="area-not-always" data-points="{len(points)}"/>'
    y = bottom - always / top * height
    body += _rect(left, y, width, bottom - y, "area-always", bytes=always)
    for phase, a, b in live["phases"]:
        x0, x1 = left + a / steps * width, left + b / steps * width
        body += f'<rect x="{x0:.1f}" y="{bottom + 4}" width="{x1 - x0:.1f}" height="5" class="p-{phase}"/>'
        if x1 - x0 > 60:
            body += f'<text x="{(x0 + x1) / 2:.1f}" y="{bottom + 24}" text-anchor="middle" class="dim">{phase}</text>'
    if live["peak"] >= 0:
        x = left + live["peak"] / steps * width
        high = bottom - (always + live["peak_bytes"]) / top * height
        anchor, shift = ("end", -8) if x > left + width / 2 else ("start", 8)
        body += f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{bottom}" class="peak"/>'
        body += f'<circle cx="{x:.1f}" cy="{high:.1f}" r="4" class="peak-dot"/>'
        where = escape(report.memory.peak_at)
        body += (
            f'<text x="{x + shift:.1f}" y="20" text-anchor="{anchor}" class="peak-text">fullest tile: {where}</text>'
        )
    body += f'<line id="live-cursor" y1="8" y2="{bottom}" x1="-9" x2="-9" class="cursor"/>'
    return _svg(WIDE, bottom + 30, body, "Live bytes over the program", "liveness")


def peak_parts(report: Document) -> Markup:
    """What the fullest tile holds at the peak, as one stacked bar with a legend."""
    parts = list(report.memory.peak_parts.items())
    total, x = max(1, sum(n for _, n in parts)), 0.0
    body: list[str] = []
    for k, (name, n) in enumerate(parts):
        width = n / total * WIDE
        body.append(_rect(x, 0, width, 26, f"c{k % 8}", f"{name}: {formats.size(n)}", bytes=n))
        if width > 90:
            body.append(f'<text x="{x + 8:.1f}" y="18" class="on">{formats.percent(n, total)}</text>')
        x += width
    return _svg(WIDE, 26, "".join(body), "Fullest tile at the peak", "peak-parts")


def timeline(bars: dict[str, Any], ipus: int) -> Markup:
    """One lane per IPU and phase colour; the script zooms by changing the view box."""
    width, lane = float(WIDE), 46
    body: list[str] = []
    for k in range(ipus):
        y = k * lane
        body.append(f'<rect x="0" y="{y + 2}" width="{width:g}" height="{lane - 8}" class="lane"/>')
    for bar in bars["rows"]:
        x, w = bar.start / bars["end"] * width, bar.length / bars["end"] * width
        y = bar.ipu * lane + 2
        title = f"{bar.label} ({bar.phase}): {formats.count(bar.length)} cycles"
        high = lane - 8
        body.append(_rect(x, y, max(w, 0.05), high * 0.62, f"p-{bar.phase}", title, cycles=f"{bar.length:.1f}"))
        for kind, value in zip(CYCLE_FIELDS, bar.kinds, strict=True):
            part = value / bars["end"] * width
            if part >= 0.04:
                body.append(_rect(x, y + high * 0.66, part, high * 0.34, f"k-{kind}"))
            x += part
    return _svg(width, ipus * lane, "".join(body), "Timeline per IPU", "timeline")


def balance(report: Document) -> Markup:
    """Share of the compute cycles by how evenly the tiles are busy in them, in ten classes."""
    bins, tiles = [0.0] * 10, report.target["tilesPerIPU"]
    for step in report.steps:
        for p in step.parts:
            busy = p.balance * min(1.0, p.tiles / tiles)
            bins[min(9, int(busy * 10))] += p.cycles.compute * p.times * step.trips
    total = sum(bins) or 1.0
    body: list[str] = []
    longest, step_width, height = max(*bins, 1e-9), (HALF - 20) / 10, 150
    for k, cycles in enumerate(bins):
        x, high = 10 + k * step_width, cycles / longest * height
        tip = f"{k * 10} to {k * 10 + 10} % busy: {formats.percent(cycles, total)} of compute cycles"
        body.append(_rect(x + 3, 20 + height - high, step_width - 6, high, "k-compute", tip, cycles=f"{cycles:.1f}"))
        if cycles:
            text = formats.percent(cycles, total)
            place = f'x="{x + step_width / 2:.1f}" y="{14 + height - high:.1f}"'
            body.append(f'<text {place} text-anchor="middle" class="dim small">{text}</text>')
        body.append(f'<text x="{x:.1f}" y="{height + 38}" text-anchor="middle" class="dim small">{k * 10}</text>')
    body.append(f'<text x="{HALF - 10}" y="{height + 38}" text-anchor="end" class="dim small">100 %</text>')
    return _svg(HALF, height + 44, "".join(body), "Balance of the tiles", "balance")
