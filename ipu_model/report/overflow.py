"""The text of a program that does not fit."""

from __future__ import annotations

from ipu_model.report.model import Overflow


def render(o: Overflow) -> str:
    """Which tile, how much, at which operation, the terms of the demand, and the levers with their gains."""
    lines = [
        f"tile {o.tile} needs {_kib(o.needs)} of {_kib(o.has)} ({_kib(o.needs - o.has)} too much), "
        f"at {o.at} in the {o.phase} pass" + (f", IPU {o.ipu}" if o.ipu else ""),
        _terms("always live", o.always),
        _terms("not always", o.not_always),
    ]
    if o.levers:
        alone = any(lever.enough for lever in o.levers)
        lines.append(f"  levers ({'each alone is enough unless marked +' if alone else 'none is enough alone'}):")
        lines += [
            f"   {lever.change}    -{_kib(lever.gain)}{'' if lever.enough or not alone else '  +'}"
            for lever in o.levers
        ]
        if o.together:
            lines.append(f"  together enough: {o.together.change}    -{_kib(o.together.gain)}")
    elif o.levers is not None:
        lines.append("  no lever of the model frees memory on this tile")
    return "\n".join(lines)


def _terms(title: str, terms: dict[str, int]) -> str:
    total = sum(terms.values())
    listed = ", ".join(f"{name} {_kib(size, unit=False)}" for name, size in terms.items())
    return f"   {title:12} {_kib(total):>10}   {listed}"


def _kib(size: int, unit: bool = True) -> str:
    number = f"{size / 1024:,.1f}" if size < 10240 else f"{size / 1024:,.0f}"
    return f"{number} KiB" if unit else number
