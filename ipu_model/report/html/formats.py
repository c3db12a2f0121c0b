"""Numbers and units as text for the page."""

from __future__ import annotations

import math

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(value: float) -> str:
    """Bytes with a binary unit and three digits."""
    sign, value, unit = "-" if value < 0 else "", abs(float(value)), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{sign}{value:.0f} {UNITS[unit]}" if unit == 0 else f"{sign}{_digits(value)} {UNITS[unit]}"


def round_sizes(top: float) -> list[float]:
    """At most six round sizes from zero to `top`: multiples of quarters, halves, 1, 2, 5, 10, ... of a unit."""
    unit = 1024 ** max(0, min(int(math.log2(max(top, 1)) // 10), len(UNITS) - 1))
    steps = (max(1, unit // 2**n) for n in (2, 1))
    step = next(s for s in (*steps, *(n * 10**k * unit for k in range(9) for n in (1, 2, 5))) if top <= 5 * s)
    return [k * step for k in range(int(top / step) + 1)]


def _digits(value: float) -> str:
    """Three digits, or all before the point; never a power of ten."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def count(value: float) -> str:
    """A count with a decimal prefix."""
    sign, value = "-" if value < 0 else "", abs(float(value))
    for limit, suffix in ((1e18, " E"), (1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= limit:
            return f"{sign}{_digits(value / limit * (10 if suffix == ' k' else 1))}{suffix}"
    return f"{sign}{value:,.0f}" if value >= 100 or value == int(value) else f"{sign}{value:.3g}"


def percent(part: float, whole: float = 1.0) -> str:
    """A share with one decimal: ``"12.5 %"``; of nothing it is ``"0.0 %"``."""
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"


def signed(value: float) -> str:
    """Relative change as a percentage with its sign."""
    return f"{100 * value:+.1f} %"


def seconds(value: float) -> str:
    """A duration in s, ms or µs with three digits."""
    for limit, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs")):
        if value >= limit:
            return f"{_digits(value * factor)} {unit}"
    return "0 s"


def plural(n: int, what: str) -> str:
    """``1 IPU``, ``2 IPUs``."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
