"""Levers taken together: the fewest that make a program fit which none of them makes fit alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipu_model.memory.liveness import Change
from ipu_model.memory.replan import Fullest
from ipu_model.pricing import Priced
from ipu_model.report.model import Lever
from ipu_model.walk.program import Op

Again = Callable[..., Priced]
"""Prices the program again with other options, inputs or placement."""
Resized = tuple[Callable[[Op], Op | None], Callable[[int], float]]
"""What an operation becomes (None: it stays), and the size of each value as a factor of its present one."""


@dataclass(frozen=True, eq=False)
class Part:
    """A lever, and how a program is changed by it."""

    change: str  # the lever in words
    after: int  # bytes of the fullest tile with this lever alone
    kind: str = ""  # of levers of one kind, only one can be taken; one without a kind is for itself
    how: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what the program is priced again with
    resized: Callable[[Priced], Resized] | None = None  # the operations and sizes of a priced program with this lever
    recompute: frozenset[str] = frozenset()  # nodes to recompute


def together(parts: Sequence[Part], priced: Priced, again: Again, before: int, has: int) -> Lever | None:
    """The best levers of each kind, as many as it takes, the strongest first; None where all are not enough."""
    best = {p.kind: p for p in sorted(parts, key=lambda p: -p.after) if p.kind and p.after < before}
    strongest = sorted(best.values(), key=lambda p: p.after)

    @functools.cache
    def address(taken: tuple[Part, ...]) -> int:
        return _address(taken, priced, again)

    taken = next((t for n in range(2, len(strongest) + 1) if address(t := tuple(strongest[:n])) <= has), ())
    for part in reversed(taken[:-1]):  # without the last one they were not enough
        fewer = tuple(p for p in taken if p is not part)
        taken = fewer if address(fewer) <= has else taken
    return Lever(", ".join(p.change for p in taken), before - address(taken), True) if taken else None


def _address(parts: Sequence[Part], priced: Priced, again: Again) -> int:
    """Bytes of the fullest tile of the program with all of these levers."""
    how = {name: value for part in parts for name, value in part.how.items()}
    changed = again(**how) if how else priced
    nodes = frozenset[str]().union(*(part.recompute for part in parts))
    sizes = [part.resized(changed) for part in parts if part.resized]
    if not sizes:
        return Fullest(changed)(Change(recompute=nodes))

    def op(old: Op) -> Op | None:
        new = old
        for change, _ in sizes:
            new = change(new) or new
        return None if new is old else new

    def scale(value: int) -> float:
        return functools.reduce(lambda factor, size: factor * size[1](value), sizes, 1.0)

    return Fullest(changed).replanned(op, scale, recompute=nodes)
