"""Charts as SVG text. Every mark carries its figure in a data attribute, so that pages can be checked without eyes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup, escape

from ipu_model.cost import Cost
from ipu_model.report.html import formats
from ipu_model.report.model import Report

COLUMNS, CELL = 64, 13


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


def phases(report: Report, rows: Sequence[tuple[str, Cost]], kinds: Sequence[str], names: dict[str, str]) -> Markup:
    """One bar per phase, stacked by kind of cycle."""
    longest = max((c.total for _, c in rows), default=1.0)
    body = []
    for k, (phase, c) in enumerate(rows):
        y, x = 6 + k * 40, 92.0
        body.append(f'<text x="84" y="{y + 18}" text-anchor="end">{phase}</text>')
        for kind in kinds:
            value = getattr(c, kind)
            width = value / longest * 580
            if width > 0:
                title = f"{phase}: {formats.count(value)} cycles {names[kind]}"
                body.append(_rect(x, y, width, 26, f"k-{kind}", title, phase=phase, kind=kind, value=f"{value:.3f}"))
            x += width
        share = formats.percent(c.total, report.cycles.total)
        body.append(f'<text x="{x + 8:.1f}" y="{y + 18}" class="dim">{formats.count(c.total)} ({share})</text>')
    return _svg(820, 12 + 40 * len(rows), "".join(body), "Cycles by phase and kind", "phases")


def heat_map(report: Report, ipu: int) -> Markup:
    """Tiles of one IPU in rows of 64; equal neighbours are one rectangle."""
    m = report.memory
    first = ipu * m.tiles_per_ipu
    values = m.including_gaps_by_tile[first : first + m.tiles_per_ipu]
    body = []
    for row in range(0, len(values), COLUMNS):
        at = row
        for value, cells in groupby(values[row : row + COLUMNS]):
            n = len(list(cells))
            x, y = (at - row) * CELL, row // COLUMNS * CELL
            size = f'x="{x}" y="{y}" width="{n * CELL - 1}" height="{CELL - 1}"'
            facts = f'data-tile="{at}" data-tiles="{n}" data-bytes="{value}"'
            body.append(f'<rect {size} fill="{_heat(value / m.bytes_per_tile)}" {facts}/>')
            at += n
    height = -(-len(values) // COLUMNS) * CELL
    lines = "".join(
        f'<line x1="{x - 0.5}" x2="{x - 0.5}" y1="0" y2="{height}"/>' for x in range(CELL, COLUMNS * CELL, CELL)
    )
    body.append(f'<g class="cells">{lines}</g>')
    return _svg(COLUMNS * CELL, height, "".join(body), f"Memory of each tile of IPU {ipu}", "heat")


HEAT = ((0.0, (68, 1, 84)), (0.25, (59, 82, 139)), (0.5, (33, 145, 140)), (0.75, (94, 201, 98)), (1.0, (253, 231, 37)))


def _heat(share: float) -> str:
    """A perceptually even colour scale; red beyond the limit."""
    if share > 1:
        return "#e5484d"
    for (a, low), (b, high) in pairwise(HEAT):
        if share <= b:
            t = (share - a) / (b - a)
            return "#" + "".join(f"{round(x + t * (y - x)):02x}" for x, y in zip(low, high, strict=True))
    return "#fde725"


def heat_scale() -> Markup:
    stops = "".join(f'<stop offset="{at:g}" stop-color="{_heat(at)}"/>' for at, _ in HEAT)
    body = (
        f'<defs><linearGradient id="heat">{stops}</linearGradient></defs>'
        '<rect width="220" height="10" rx="2" fill="url(#heat)"/>'
        '<text x="0" y="24" class="dim">empty</text><text x="220" y="24" text-anchor="end" class="dim">full</text>'
    )
    return _svg(240, 28, body, "Colour scale of tile memory", "scale")


def _axis(top: float, limit: float, width: float, height: float, left: float) -> str:
    """Horizontal lines with sizes, and the limit line when it is near."""
    lines = []
    for k in range(5):
        y = 8 + height * k / 4
        value = top * (1 - k / 4)
        lines.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        lines.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" class="dim">{formats.size(value)}</text>')
    if 0 < limit <= top:
        y = 8 + height * (1 - limit / top)
        lines.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="limit"/>')
        lines.append(
            f'<text x="{left + width}" y="{y - 5:.1f}" text-anchor="end" class="limit-text">tile memory</text>'
        )
    return "".join(lines)


def _path(points: Sequence[tuple[float, float]], close_to: float | None = None) -> str:
    text = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if close_to is not None and points:
        text += f"L{points[-1][0]:.1f} {close_to:.1f}L{points[0][0]:.1f} {close_to:.1f}Z"
    return text


def sorted_profile(
    report: Report, points: Sequence[tuple[float, int, int]], other: Sequence[Any] | None = None
) -> Markup:
    """Bytes per tile, fullest first: always live below, the peak of the rest above."""
    left, width, height = 74, 740, 210
    top = (
        max(report.memory.bytes_per_tile, *(t for _, _, t in points), *(t for _, _, t in other or ((0, 0, 0),))) * 1.04
    )
    bottom = 8 + height

    def place(row: int, rows: Sequence[Any]) -> list[tuple[float, float]]:
        return [(left + p[0] * width, bottom - p[row] / top * height) for p in rows]

    body = _axis(top, report.memory.bytes_per_tile, width, height, left)
    body += f'<path d="{_path(place(2, points), bottom)}" class="area-not-always" data-max="{points[0][2]}"/>'
    body += f'<path d="{_path(place(1, points), bottom)}" class="area-always"/>'
    if other:
        body += f'<path d="{_path(place(2, other))}" class="line-other"/>'
    body += f'<text x="{left}" y="{bottom + 18}" class="dim">fullest tile</text>'
    body += f'<text x="{left + width}" y="{bottom + 18}" text-anchor="end" class="dim">emptiest tile</text>'
    return _svg(830, bottom + 26, body, "Bytes per tile, sorted", "profile")


def categories(report: Report) -> Markup:
    """Bytes over all tiles by category."""
    rows = [(name, sum(by)) for name, by in report.memory.categories.items()]
    rows = sorted((r for r in rows if r[1]), key=lambda r: -r[1])
    longest = max((n for _, n in rows), default=1)
    body = []
    for k, (name, n) in enumerate(rows):
        y, width = 4 + k * 28, n / longest * 420
        body.append(f'<text x="182" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        body.append(_rect(190, y, width, 20, "bar", category=name, bytes=n))
        share = formats.percent(n, report.memory.total)
        body.append(f'<text x="{198 + width:.1f}" y="{y + 15}" class="dim">{formats.size(n)} ({share})</text>')
    return _svg(820, 8 + 28 * len(rows), "".join(body), "Memory by category", "categories")


def liveness(report: Report, live: dict[str, Any]) -> Markup:
    """Bytes over all tiles while each step runs."""
    left, width, height = 74, 740, 220
    points, steps, always = live["points"], max(1, live["steps"]), live["always"]
    top = max(1, always + max((b for _, b in points), default=0)) * 1.06
    bottom = 8 + height
    body = _axis(top, 0, width, height, left)
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
    return _svg(830, bottom + 30, body, "Live bytes over the program", "liveness")


def peak_parts(report: Report) -> Markup:
    """What the fullest tile holds at the peak, as one stacked bar with a legend."""
    parts = list(report.memory.peak_parts.items())
    total, x, body = max(1, sum(n for _, n in parts)), 0.0, []
    for k, (name, n) in enumerate(parts):
        width = n / total * 820
        body.append(_rect(x, 0, width, 24, f"c{k % 8}", f"{name}: {formats.size(n)}", bytes=n))
        x += width
    return _svg(820, 24, "".join(body), "Fullest tile at the peak", "peak-parts")


def timeline(bars: dict[str, Any], ipus: int) -> Markup:
    """One lane per IPU and phase colour; the script zooms by changing the view box."""
    width, lane = 1160.0, 46
    body = []
    for k in range(ipus):
        y = k * lane
        body.append(f'<rect x="0" y="{y + 2}" width="{width:g}" height="{lane - 8}" class="lane"/>')
    for name, phase, ipu, start, length, kinds in bars["rows"]:
        x, w = start / bars["end"] * width, length / bars["end"] * width
        y = ipu * lane + 2
        title = f"{name} ({phase}): {formats.count(length)} cycles"
        high = lane - 8
        body.append(_rect(x, y, max(w, 0.05), high * 0.62, f"p-{phase}", title, cycles=f"{length:.1f}"))
        for kind, value in zip(("compute", "exchange", "sync", "inter_ipu", "host"), kinds, strict=True):
            part = value / bars["end"] * width
            if part >= 0.04:
                body.append(_rect(x, y + high * 0.66, part, high * 0.34, f"k-{kind}"))
            x += part
    return _svg(width, ipus * lane, "".join(body), "Timeline per IPU", "timeline")
