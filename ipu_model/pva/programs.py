"""Programs of a profile, and a visitor over their tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Program:
    """One program: a sequence, a repeat, or a leaf that does work."""

    type: str
    name: str
    children: list[Program] = field(default_factory=list, repr=False)
    count: float = 1
    computeSet: int | None = None
    vertices: int = 0
    index: int = 0

    def accept(self, visitor: ProgramVisitor) -> None:
        """Call the visitor's method for this type of program, or `visitProgram`."""
        method = getattr(visitor, f"visit{self.type}", None)
        (method or visitor.visitProgram)(self)


class ProgramVisitor:
    """Visits programs depth first; override ``visit<Type>`` or `visitProgram`."""

    def visitProgram(self, program: Program) -> None:
        for child in program.children:
            child.accept(self)


def read(listed: Sequence[dict[str, Any]], counts: Sequence[Sequence[int]]) -> list[Program]:
    """Programs of the flat list of a graph profile, linked to their children."""
    found = []
    for k, entry in enumerate(listed):
        at = entry.get("computeset")
        vertices = sum(counts[at]) if at is not None else 0
        found.append(Program(entry["type"], entry["name"], [], entry.get("count", 1), at, vertices, k))
    for program, entry in zip(found, listed, strict=True):
        program.children = [found[c] for c in entry.get("children", ())]
    return found
