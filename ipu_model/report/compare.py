"""What differs between two reports: which operations got slower, which memory grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ipu_model.report.model import Document
from ipu_model.report.summary import KINDS

MOST = 40  # rows of each list
LEAST = 0.01  # of the largest change: smaller ones are left out
Change = tuple[str, float, float]  # name, before, now


@dataclass(frozen=True)
class Comparison:
    """Differences from an earlier report, the largest first, without those below a hundredth of it."""

    name: str  # of the earlier report, and its target where that is another
    unit: str  # of time: ``"cycles"``, or ``"ns"`` where the clocks differ
    cycles: tuple[Change, ...]  # of a run, and of each kind of cycle
    memory: tuple[Change, ...]  # bytes: the fullest tile, all tiles, and each category that changed
    operations: tuple[Change, ...]  # time by operation and phase
    variables: tuple[Change, ...]  # bytes by name; variables of one name are added up

    def __str__(self) -> str:
        """A few lines of each list, as text."""
        lines = [f"compared with {self.name}:"]
        for title, rows, unit in (
            (self.unit, self.cycles, ""),
            ("memory", self.memory, " bytes"),
            (f"operations that changed most [{self.unit}]", self.operations, ""),
            ("variables that changed most", self.variables, " bytes"),
        ):
            lines.append(f"  {title}:" + ("" if rows else " no difference"))
            lines += [f"    {name}: {old:,.0f} -> {new:,.0f}{unit}{_share(old, new)}" for name, old, new in rows[:12]]
        return "\n".join(lines)


def compare(new: Document, old: Document) -> Comparison:
    """Differences of `new` from `old`; operations and variables are matched by name.

    Cycles of chips with other clocks are compared as nanoseconds. Raises TypeError where `old` is no report.
    """
    if not isinstance(old, Document):
        raise TypeError(f"a report is compared with a report, not with {old!r:.80}")
    alike = _clock(old) == _clock(new)
    was, now = (1.0, 1.0) if alike else (1e9 / _clock(old), 1e9 / _clock(new))
    times = [("cycles of a run" if alike else "a run", was * old.total_cycles, now * new.total_cycles)]
    kinds = (
        (
            text if alike else text.replace(" cycles", ""),
            was * getattr(old.cycles, kind),
            now * getattr(new.cycles, kind),
        )
        for kind, text in KINDS
    )
    times += [row for row in kinds if row[1] or row[2]]
    tiles = (
        ("fullest tile", float(old.memory.max_tile), float(new.memory.max_tile)),
        ("all tiles", float(old.memory.total), float(new.memory.total)),
    )
    return Comparison(
        old.name if alike else f"{old.name} on {old.target['name']}",
        "cycles" if alike else "ns",
        tuple(times),
        (*tiles, *_changed(_categories(old), _categories(new))),
        _changed(_operations(old, was), _operations(new, now)),
        _changed(_variables(old), _variables(new)),
    )


def _clock(r: Document) -> float:
    return float(r.target["clockFrequency"])


def _changed(old: Mapping[str, float], new: Mapping[str, float]) -> tuple[Change, ...]:
    rows = [(name, float(old.get(name, 0)), float(new.get(name, 0))) for name in {**old, **new}]
    largest = max((abs(now - was) for _, was, now in rows), default=0.0)
    changed = (row for row in rows if row[1] != row[2] and abs(row[2] - row[1]) >= LEAST * largest)
    return tuple(sorted(changed, key=lambda row: -abs(row[2] - row[1]))[:MOST])


def _categories(r: Document) -> dict[str, float]:
    return {name: sum(by) for name, by in r.memory.categories.items()}


def _operations(r: Document, scale: float) -> Mapping[str, float]:
    return _summed((f"{o.node} ({o.phase})", scale * o.cycles.total) for o in r.operations)


def _variables(r: Document) -> Mapping[str, float]:
    return _summed((f"{v.name} ({v.kind})", v.bytes) for v in r.memory.variables)


def _summed(rows: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    found: Counter[str] = Counter()
    for name, amount in rows:
        found[name] += amount  # pyright: ignore[reportArgumentType]
    return found


def _share(old: float, new: float) -> str:
    return f" ({(new - old) / old:+.1%})" if old else " (new)"
