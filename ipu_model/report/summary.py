"""The report as text, in the shape of Poplar's summary, which programs also parse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from ipu_model.costs.default import STATEMENT
from ipu_model.report.explain import uncertainty
from ipu_model.report.model import Document, StepRow
from ipu_model.report.overflow import render as overflow_text
from ipu_model.walk.scope import pieces

KINDS = (
    ("compute", "compute cycles (including idle threads)"),
    ("exchange", "IPU exchange cycles"),
    ("inter_ipu", "global exchange cycles"),
    ("host", "host exchange cycles"),
    ("sync", "sync cycles"),
)


def render(
    report: Document,
    *,
    show_execution_steps: bool = False,
    show_var_storage: bool = False,
    group_host_copies: bool = False,
) -> str:
    """The text of `Report.summary`."""
    sections = [_target(report), _graph(report), _memory(report, show_var_storage), _execution(report)]
    if show_execution_steps:
        sections.append(_program(report, group_host_copies))
    if report.unpriced or report.assumptions:
        sections.append(_notes(report))
    return "\n".join("\n".join(s) + "\n" for s in sections)


def _target(r: Document) -> list[str]:
    t = r.target
    return [
        "Target:",
        f"  Type:            {t['type']} ({t['name']}, {t['architecture']})",
        f"  Number of IPUs:  {t['numIPUs']:,} ({t['ipusPerReplica']:,} per replica, {t['numReplicas']:,} replica(s))",
        f"  Tiles per IPU:   {t['tilesPerIPU']:,}",
        f"  Memory:          {t['totalMemory']:,} bytes in all, {t['bytesPerTile']:,} per tile",
        f"  Clock:           {t['clockFrequency'] / 1e6:,.0f} MHz",
    ]


def _graph(r: Document) -> list[str]:
    parts = [p for s in r.steps for p in s.parts]
    return [
        "Graph:",
        f"  Number of vertices:      {sum(p.vertices for p in parts):,}",
        f"  Number of edges:         {sum(p.vertices * 3 for p in parts):,}",
        f"  Number of variables:     {r.memory.variable_count:,}",
        f"  Number of compute sets:  {sum(1 for p in parts if p.vertices):,}",
    ]


def _memory(r: Document, show_variables: bool) -> list[str]:
    m, t = r.memory, r.target
    capacity = t["bytesPerIPU"] * t["ipusPerReplica"]
    worst = m.fullest
    lines = [
        "Memory Usage:",
        f"  Total for {t['ipusPerReplica']} IPU(s), including gaps:  {sum(m.including_gaps_by_tile):,} bytes",
        (
            f"  Total for {t['ipusPerReplica']} IPU(s), excluding gaps:  {m.total:,} bytes "
            f"({_percent(m.total, capacity)} of {capacity:,})"
        ),
        (
            f"  Fullest tile ({worst}):  {m.max_tile:,} of {m.bytes_per_tile:,} bytes including gaps, "
            f"{m.total_by_tile[worst]:,} excluding gaps"
        ),
        f"  Fits: {'yes' if r.fits else 'NO'}",
        "  By category:",
    ]
    for name, by_tile in m.categories.items():
        lines.append(f"    {name + ':':24} {sum(by_tile):>14,} bytes ({_percent(sum(by_tile), m.total)})")
    lines += [
        f"  Always live:      {sum(m.always_by_tile):,} bytes",
        f"  Not always live:  {sum(m.not_always_by_tile):,} bytes, peak at {m.peak_at or 'the start'}",
        "  Fullest tile at the peak:",
        *(f"    {name}: {size:,} bytes" for name, size in m.peak_parts.items()),
    ]
    lines += _vertex_data(r)
    if r.overflow:
        lines += ["", *overflow_text(r.overflow).splitlines()]
    if show_variables:
        lines += ["", "  Largest variables:"]
        lines += [f"    {v.name} {v.shape} ({v.kind}): {v.bytes:,} bytes" for v in m.variables[:40]]
    return lines


def _vertex_data(r: Document) -> list[str]:
    """The section programs look for: ``Vertex Data (<bytes>)``, ``By Type:``, one line per type, an empty line."""
    total = sum(v.code_bytes + v.state_bytes for v in r.vertices)
    lines = [f"  Vertex Data ({total:,}B):", "    By Type:"]
    lines += [f"      {v.name} {v.code_bytes + v.state_bytes} bytes, {v.instances} vertices" for v in r.vertices]
    return [*lines, ""]


def _execution(r: Document) -> list[str]:
    s = r.schedule
    lines = [
        "Execution:",
        f"  Total cycles:   {s.cycles:,.0f} (approx {s.seconds * 1e6:,.1f} microseconds)",
        *([f"  Expected error: {within}"] if (within := uncertainty(r)) else []),
        f"  Schedule:       {s.kind}" + (f", {s.bubbles:,.0f} idle cycles over all IPUs" if s.bubbles else ""),
    ]
    if s.samples_per_second:
        lines.append(f"  Throughput:     {s.samples_per_second:,.0f} samples per second")
    lines.append(f"  Steps executed: {sum(x.trips * max(1, len(x.parts)) for x in r.steps):,.0f}")
    lines += _kinds(r)
    lines.append("  Cycles by phase:")
    lines += [
        f"    {name + ':':10} {c.total:>16,.0f} ({_percent(c.total, r.cycles.total)})" for name, c in r.phases.items()
    ]
    if len(r.ipus) > 1:
        lines.append("  Cycles by IPU:")
        lines += [f"    IPU {i.ipu}: {i.cycles.total:,.0f} busy, {i.idle:,.0f} idle" for i in r.ipus]
    lines.append("  Cycles by vertex type:")
    spent = sorted(r.vertices, key=lambda v: -v.cycles)[:20]
    lines += [f"    {v.name} ({v.instances} instances): {v.cycles:,.0f}" for v in spent]
    return lines


def _kinds(r: Document) -> list[str]:
    """Averages over the tiles of all IPUs; in a step of compute all tiles of its IPU wait for the slowest."""
    ipus = max(1, len(r.ipus))
    rows = [(text, getattr(r.cycles, name) / ipus) for name, text in KINDS]
    rows.insert(1, ("compute cycles (excluding idle threads)", _busy(r) / ipus))
    if ipus > 1:
        rows.append(("idle cycles, while other IPUs work", sum(i.idle for i in r.ipus) / ipus))
    return [f"  {f'Tile average {text}:':54} {n:>16,.0f} ({_percent(n, r.schedule.cycles)})" for text, n in rows]


def _busy(r: Document) -> float:
    """Compute cycles of a mean tile while it has work."""
    tiles, busy = r.target["tilesPerIPU"], 0.0
    for step in r.steps:
        for p in step.parts:
            busy += p.cycles.compute * p.times * step.trips * p.balance * min(1.0, p.tiles / tiles)
    return busy


def _program(r: Document, grouped: bool) -> list[str]:
    """Nested program, one step per line; the host picks it among those of the engine, hence the Switch."""
    head, depth = ["Program:", "  Switch", "    Sequence"], {0: 3}
    lines: list[str] = []
    for k, f in enumerate(r.frames[1:], 1):
        depth[k] = depth[f.parent] + (1 if f.kind in ("repeat", "while", "branch") else 0)
    opened = {0}
    for step in r.steps:
        lines += _open_frames(r, step.frame, opened, depth)
        lines += ["  " * depth[step.frame] + text for text in step_lines(step)]
    return head + (_grouped(lines) if grouped else lines)


def _one_copy(paths: list[str], depth: int) -> list[str]:
    return [f"{' ' * depth}StreamCopy: {', '.join(paths)}"] if paths else []


def _grouped(lines: list[str]) -> list[str]:
    """In each stretch of one loop, copies to and from the host as one each, its first and its last step."""
    found: list[str] = []
    for depth, stretch in groupby(lines, lambda line: len(line) - len(line.lstrip())):
        into: list[str] = []
        out: list[str] = []
        rest: list[str] = []
        for line in stretch:
            kind, _, path = line.strip().partition(": ")
            if kind != "StreamCopy":
                rest.append(line)
            else:
                (into if path.endswith("/in") else out).append(path)
        found += _one_copy(into, depth) + rest + _one_copy(out, depth)
    return found


def _open_frames(r: Document, frame: int, opened: set[int], depth: dict[int, int]) -> Iterator[str]:
    chain: list[int] = []
    while frame not in opened:
        chain.append(frame)
        frame = r.frames[frame].parent
    for k in reversed(chain):
        opened.add(k)
        f = r.frames[k]
        word = {"repeat": f"Repeat: {f.trips:g} times", "while": f"RepeatWhile: {f.trips:g} times",
                "branch": "Switch"}.get(f.kind)  # fmt: skip
        if word:
            yield "  " * (depth[k] - 1) + f"{word} ({f.name})"


def step_lines(step: StepRow) -> list[str]:
    """``DoExchange: <path>`` and ``OnTileExecute: <path>`` lines of a step."""
    lines: list[str] = []
    for p in step.parts:
        path, code = f"{step.name}/{p.name}", f"{step.code or step.name}/{p.name}"
        if p.cycles.host:
            lines.append(f"StreamCopy: {path}")
        elif p.cycles.inter_ipu:
            lines.append(f"GlobalExchange: {path}")
        elif p.received:
            lines.append(f"DoExchange: {code}")
        if p.tiles:
            lines.append(f"OnTileExecute: {code}")
    return lines


def _notes(r: Document) -> list[str]:
    lines = ["Notes:"]
    if r.unpriced:
        names = ", ".join(f"{n} x{c}" for n, c in r.unpriced.items())
        lines.append(f"  {names}: {STATEMENT}")
    return lines + [f"  {a}" for a in r.assumptions]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


SHOWN = 5  # operations in the short summary
SAYING = 0.1  # share of the cycles below which the most expensive operations together say little
NAME_WIDTH = 48


def short(r: Document) -> str:
    """Ten lines: time, where it goes, memory, and the most expensive operations."""
    total = max(1.0, r.cycles.total)
    shares = ", ".join(
        f"{kind.replace('inter_ipu', 'between IPUs')} {getattr(r.cycles, kind) / total:.0%}"
        for kind, _ in KINDS
        if getattr(r.cycles, kind) / total >= 0.005
    )
    m, t = r.memory, r.target
    ipus = "" if t["architecture"] == "roofline" else f", {t['ipusPerReplica']} IPU(s)"
    said = len(r.unpriced) + len(r.assumptions)
    notes = f"; {said} note{'s' * (said > 1)} in summary()" if said else ""
    verdict = "fits" if r.fits else "does not fit"
    rate = f", {r.schedule.samples_per_second:,.1f} samples/s" if r.schedule.samples_per_second else ""
    alone = (lever.change for lever in r.overflow.levers or () if lever.enough) if r.overflow else ()
    several = f"; enough together: {r.overflow.together.change}" if r.overflow and r.overflow.together else ""
    remedy = next((f"; enough alone: {change}" for change in alone), several)
    lines = [
        f"{r.name} on {t['name']}{ipus}, all figures modelled{notes}",
        f"  {r.total_cycles:,.0f} cycles, {r.schedule.seconds * 1e3:,.3f} ms{rate}",
        f"  of which {shares or 'nothing'}",
        f"  {verdict}: fullest tile {m.max_tile:,} of {m.bytes_per_tile:,} bytes, {m.total:,} in all{remedy}",
        *_most_expensive(r, total),
    ]
    return "\n".join(lines)


def _most_expensive(r: Document, total: float) -> list[str]:
    """The most expensive operations; the most expensive scopes where single operations say little."""
    rows: Counter[str] = Counter()
    scopes: Counter[str] = Counter()
    for o in r.operations:
        rows[f"{_shortened(o.name)} ({o.phase})"] += o.cycles.total  # pyright: ignore[reportArgumentType]
        scopes[f"{_shortened(next(iter(pieces(o.node)), o.node))} ({o.phase})"] += o.cycles.total
    small = sum(cycles for _, cycles in rows.most_common(SHOWN)) < SAYING * total
    if small and len(scopes) < len(r.operations):
        found, count, what = scopes, len(scopes), "scopes"
    else:
        found, count, what = rows, len(r.operations), "operations"
    lines = [f"    {cycles / total:6.1%}  {name}" for name, cycles in found.most_common(SHOWN)]
    return [f"  most expensive of {count:,} {what}:", *lines]


def _shortened(name: str) -> str:
    """A long name without its middle."""
    half = (NAME_WIDTH - 1) // 2
    return name if len(name) <= NAME_WIDTH else f"{name[:half]}…{name[-half:]}"
