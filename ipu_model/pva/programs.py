"""Programs of a profile, and a visitor over their tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar


class ProgramType(StrEnum):
    """Kinds of programs; equal to their names as text."""

    Assign = "Assign"
    Call = "Call"
    Copy = "Copy"
    CopySharedStructure = "CopySharedStructure"
    DoExchange = "DoExchange"
    Execute = "Execute"
    GlobalExchange = "GlobalExchange"
    If = "If"
    OnTileExecute = "OnTileExecute"
    Repeat = "Repeat"
    RepeatWhile = "RepeatWhile"
    Sequence = "Sequence"
    StreamCopy = "StreamCopy"
    StreamCopyBegin = "StreamCopyBegin"
    StreamCopyMid = "StreamCopyMid"
    StreamCopyEnd = "StreamCopyEnd"
    Switch = "Switch"
    Sync = "Sync"
    WriteUndef = "WriteUndef"


@dataclass(frozen=True)
class VertexType:
    """A codelet by name, and the bytes of the state of one vertex."""

    name: str
    size: int = 0


@dataclass(frozen=True)
class VertexInstances:
    """How many vertices of a type a compute set has."""

    type: VertexType
    count: int


@dataclass(frozen=True)
class ComputeSet:
    """Vertices that run at once; cycles of one run on the slowest tile."""

    name: str
    vertices: tuple[VertexInstances, ...]
    estimatedCycles: float

    @property
    def numVertices(self) -> int:
        """Vertices on all tiles."""
        return sum(v.count for v in self.vertices)


@dataclass(frozen=True)
class Exchange:
    """One exchange: bytes received over all tiles, cycles of one run, and its code on the tiles in use."""

    name: str
    bytesReceived: float
    estimatedCycles: float
    codeBytes: int
    tiles: int


@dataclass
class Program:
    """One program: a sequence, a repeat, or a leaf that does work.

    `codeBytesByTile` is the code of this program alone; programs that were outlined together share it.
    """

    Type: ClassVar = ProgramType

    type: ProgramType
    name: str
    children: list[Program] = field(default_factory=list["Program"], repr=False)
    count: float = 1
    computeSet: ComputeSet | None = None
    exchange: Exchange | None = None
    index: int = 0
    codeBytes: int = 0
    codeTiles: int = 0
    numTiles: int = 0

    @property
    def vertices(self) -> int:
        """Vertices of its compute set, 0 without one."""
        return self.computeSet.numVertices if self.computeSet else 0

    @property
    def codeBytesByTile(self) -> list[int]:
        """Bytes of the program's code on each tile."""
        return [self.codeBytes] * self.codeTiles + [0] * (self.numTiles - self.codeTiles)

    def accept(self, visitor: ProgramVisitor) -> None:
        """Call the visitor's method for this type of program."""
        getattr(visitor, f"visit{self.type}")(self)


class ProgramVisitor:
    """Visits programs depth first; override ``visit<Type>`` (`visitOnTileExecute`, ...) or `visitProgram`."""

    def visitProgram(self, program: Program) -> None:
        """What every method does that is not overridden: visit the children."""
        for child in program.children:
            child.accept(self)


def _visitor(kind: ProgramType) -> Callable[[ProgramVisitor, Program], None]:
    def visit(self: ProgramVisitor, program: Program) -> None:
        self.visitProgram(program)

    visit.__doc__ = f"Called for programs of type {kind}."
    return visit


for _kind in ProgramType:
    setattr(ProgramVisitor, f"visit{_kind}", _visitor(_kind))


def vertex_types(graph: Mapping[str, Any]) -> list[VertexType]:
    """Codelets of a graph profile."""
    kinds = graph["vertexTypes"]
    return [VertexType(*row) for row in zip(kinds["names"], kinds["sizes"], strict=True)]


def compute_sets(graph: Mapping[str, Any]) -> list[ComputeSet]:
    """Compute sets of a graph profile."""
    types, sets = vertex_types(graph), graph["computeSets"]

    def vertices(kinds: Sequence[int], counts: Sequence[int]) -> tuple[VertexInstances, ...]:
        return tuple(VertexInstances(types[t], n) for t, n in zip(kinds, counts, strict=True) if t >= 0)

    return [
        ComputeSet(name, vertices(kinds, counts), c)
        for name, kinds, counts, c in zip(
            sets["names"], sets["vertexTypes"], sets["vertexCounts"], sets["estimatedCycles"], strict=True
        )
    ]


def exchanges(graph: Mapping[str, Any]) -> list[Exchange]:
    """Exchanges of a graph profile."""
    e = graph["exchanges"]
    columns = (e[key] for key in ("names", "bytesReceived", "cycles", "codeBytes", "tiles"))
    return [Exchange(*row) for row in zip(*columns, strict=True)]


def read(
    listed: Sequence[Mapping[str, Any]], sets: Sequence[ComputeSet], moves: Sequence[Exchange], tiles: int
) -> list[Program]:
    """Programs of the flat list of a graph profile, linked to their children."""
    found = [
        Program(
            ProgramType(entry["type"]), entry["name"], [], entry.get("count", 1),
            sets[int(entry["computeset"])] if "computeset" in entry else None,
            moves[int(entry["exchange"])] if "exchange" in entry else None,
            k, entry.get("codeBytes", 0), entry.get("codeTiles", 0), tiles,
        )
        for k, entry in enumerate(listed)
    ]  # fmt: skip
    for program, entry in zip(found, listed, strict=True):
        program.children = [found[c] for c in entry.get("children", ())]
    return found
