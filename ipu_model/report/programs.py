"""The program tree that Poplar's reports index into: sequences, repeats, and the leaves that do work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ipu_model.report.model import Document, Part, StepRow


@dataclass
class Leaf:
    """One exchange, sync or compute set: what runs at once on all tiles."""

    type: str
    name: str
    step: StepRow
    part: Part
    cycles: float

    @property
    def runs(self) -> float:
        """How many times one run of the program runs it."""
        return self.step.trips * self.part.times


@dataclass
class Node:
    """One entry of the flat list of programs."""

    type: str
    name: str
    children: list[int] = field(default_factory=list[int])
    count: float = 1
    leaf: Leaf | None = None

    def document(self) -> dict[str, Any]:
        """The entry as Poplar's reports have it in JSON."""
        entry: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.children or self.leaf is None:
            entry["children"] = list(self.children)
        if self.type in ("Repeat", "RepeatWhile"):
            entry["count"] = self.count
        return entry


FRAME_TYPES = {"main": "Sequence", "repeat": "Repeat", "while": "RepeatWhile", "call": "Call", "branch": "Switch"}


def leaves(step: StepRow) -> Iterator[Leaf]:
    """The leaves of a step in the order in which they run; cycles are those of one run."""
    for p in step.parts:
        name = f"{step.name}/{p.name}"
        c = p.cycles
        if c.host:
            yield Leaf("StreamCopy", name, step, p, c.host)
        if c.inter_ipu:
            yield Leaf("GlobalExchange", name, step, p, c.inter_ipu)
        if c.exchange:
            yield Leaf("DoExchange", name, step, p, c.exchange)
        if c.sync:
            yield Leaf("Sync", name, step, p, c.sync)
        if c.compute and not step.fused:
            yield Leaf("OnTileExecute", name, step, p, c.compute)
    if step.fused and step.cycles.compute:
        inside = Part(step.primitive, "", 0, 0, 1.0, 0.0, step.cycles)
        yield Leaf("OnTileExecute", f"{step.name}/{step.primitive}(fused)", step, inside, step.cycles.compute)


def programs(report: Document) -> list[Node]:
    """Flat list of programs; entry 0 is the main sequence, frames follow in order, then the leaves."""
    nodes = [Node(FRAME_TYPES[f.kind], f.name, count=f.trips) for f in report.frames]
    placed = {0}
    for step in report.steps:
        frame = step.frame
        chain: list[int] = []
        while frame not in placed:
            chain.append(frame)
            frame = report.frames[frame].parent
        for k in reversed(chain):
            placed.add(k)
            nodes[report.frames[k].parent].children.append(k)
        for leaf in leaves(step):
            nodes[step.frame].children.append(len(nodes))
            nodes.append(Node(leaf.type, leaf.name, leaf=leaf))
    return nodes
