"""Plans as one self-contained page: throughput over chips, and the parts of a step of each best plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from html import escape

from ipu_model.report.html.formats import count, plural, seconds
from ipu_model.scaling.plan import Plan

_WIDE, _HIGH, _LEFT, _BELOW = 760, 320, 90, 40
_APART = 14  # least distance of two labels of an axis
_COLOURS = {
    "compute": "#3a6ea5",
    "tensor": "#c8553d",
    "stages": "#e9a13b",
    "waiting": "#b0b7c3",
    "gradients": "#7a5195",
    "update": "#5a9367",
}
_PHONE = "<meta name='viewport' content='width=device-width'>"
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 1em}
:root{color-scheme:light dark}
table{border-collapse:collapse}td,th{padding:.2em .5em;text-align:right;border-bottom:1px solid #ddd}
svg{width:100%;height:auto}text{font-size:12px;fill:currentColor}
.wide{overflow-x:auto}.ideal{stroke:#999;stroke-dasharray:5 4}"""


def render(title: str, found: Mapping[int, Sequence[Plan]], top: int) -> str:
    """The page, with the `top` best of the fitting plans that were found for each number of chips."""
    best = {chips: plans[0] for chips, plans in found.items() if plans}
    body = "<p>No plan fits.</p>"
    if best:
        legend = " ".join(f'<span style="color:{c}">&#9632;</span> {n}' for n, c in _COLOURS.items())
        body = (
            f"<h2>Throughput of the best plan</h2>{_throughput(best)}"
            f"<h2>What a step is made of</h2><p>{legend}</p>{_parts(best)}<h2>Plans</h2>"
            f"<p>Batches: samples of a micro-batch x micro-batches of a step.</p>{_table(found, top)}"
        )
    head = f"<meta charset='utf-8'>{_PHONE}<title>{escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>"


def _svg(height: float, label: str, body: str) -> str:
    return f'<svg viewBox="0 0 {_WIDE} {height:g}" role="img" aria-label="{label}">{body}</svg>'


def _throughput(best: Mapping[int, Plan]) -> str:
    """Chart of samples per second over chips, both axes logarithmic, with the line of perfect scaling."""
    ideal = {n: p.throughput / p.efficiency for n, p in best.items()}
    across, up = _scale(list(best)), _scale([*ideal.values(), *(p.throughput for p in best.values())])

    def place(chips: float, value: float) -> tuple[float, float]:
        return _LEFT + across(chips) * (_WIDE - _LEFT - 30), 10 + (1 - up(value)) * (_HIGH - 10 - _BELOW)

    lines: list[str] = []
    for css, values in (("ideal", ideal), ("found", {n: p.throughput for n, p in best.items()})):
        points = " ".join("{:.1f},{:.1f}".format(*place(n, v)) for n, v in values.items())
        lines.append(f'<polyline class="{css}" fill="none" stroke="#3a6ea5" stroke-width="2" points="{points}"/>')
    labelled: list[float] = []
    for n, plan in best.items():
        x, y = place(n, plan.throughput)
        tip = f"{plural(n, 'chip')}: {plan.throughput:,.1f} samples/s, {100 * plan.efficiency:.1f} %"
        facts = f'data-chips="{n}" data-throughput="{plan.throughput:.6g}"'
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#3a6ea5" {facts}><title>{tip}</title></circle>')
        lines.append(f'<text x="{x:.1f}" y="{_HIGH - 20}" text-anchor="middle">{n}</text>')
        if all(abs(y - other) >= _APART for other in labelled):
            labelled.append(y)
            lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{count(plan.throughput)}</text>')
    lines.append(
        f'<text x="{_WIDE / 2}" y="{_HIGH - 4}" text-anchor="middle">samples/s over chips; dashed: perfect</text>'
    )
    return _svg(_HIGH, "Samples per second over chips", "".join(lines))


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """A logarithmic scale: maps the smallest value to 0 and the largest to 1."""
    low, high = math.log(min(values)), math.log(max(values))
    return lambda value: (math.log(value) - low) / (high - low) if high > low else 0.5


def _parts(best: Mapping[int, Plan]) -> str:
    """Chart of the parts of a step: one bar of full width for each number of chips."""
    rows: list[str] = []
    for k, (chips, plan) in enumerate(best.items()):
        x, y = float(_LEFT), 4 + 30 * k
        rows.append(f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{plural(chips, "chip")}</text>')
        for name, each in asdict(plan.parts).items():
            width = each / plan.parts.total * (_WIDE - _LEFT - 110)
            tip = f"{name}: {seconds(each)}"
            place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="22" fill="{_COLOURS[name]}"'
            rows.append(f'<rect {place} data-part="{name}" data-seconds="{each:.6g}"><title>{tip}</title></rect>')
            x += width
        rows.append(f'<text x="{x + 6:.1f}" y="{y + 16}">{seconds(plan.parts.total)}</text>')
    return _svg(8 + 30 * len(best), "Parts of a step", "".join(rows))


def _table(found: Mapping[int, Sequence[Plan]], top: int) -> str:
    heads = (
        "chips",
        "data",
        "tensor",
        "pipeline",
        "recompute",
        "batches",
        "in flight",
        "samples/s",
        "efficiency",
        "GB a chip",
    )
    rows = [f"<tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>"]
    for chips, plans in found.items():
        for plan in plans[:top]:
            spread = plan.spread.data, plan.spread.tensor, plan.spread.pipeline
            figures = f"{plan.throughput:,.1f}", f"{100 * plan.efficiency:.1f} %", f"{plan.memory / 1e9:.4f}"
            batches = f"{plan.micro_batch:g} x {plan.accumulation}", plan.in_flight
            cells = (chips, *spread, "yes" if plan.recompute else "", *batches, *figures)
            rows.append(f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>")
    return f"<div class='wide'><table>{''.join(rows)}</table></div>"
