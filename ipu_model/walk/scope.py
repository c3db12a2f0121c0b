"""Where an equation comes from: node, phase and path, read off the text of its name stack."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from ipu_model.placement import PHASES as PHASES

FORWARD, BACKWARD, UPDATE = PHASES
NODE_MARK = "onnx["
UPDATE_SCOPE = "update"


@dataclass(frozen=True, slots=True)
class Scope:
    """Provenance of a step."""

    node: str  # name of the innermost node it was traced for; empty outside any node
    phase: str
    path: tuple[str, ...]  # all enclosing scopes, outermost first, without the marks that differentiation adds
    recomputed: bool = False  # true for forward work repeated inside the backward pass (rematerialisation)

    @property
    def name(self) -> str:
        """The enclosing scopes joined by slashes, outermost first."""
        return "/".join(self.path)

    @property
    def unit(self) -> str:
        """The node, or outside any node the enclosing scopes."""
        return self.node or self.name


@functools.lru_cache(maxsize=200_000)
def read(stack: str) -> Scope:
    """Scope of a name stack such as ``transpose(jvp(onnx[a/b]))/onnx[c]``."""
    node, backward, recomputed, update = "", False, False, False
    path: list[str] = []
    for part in pieces(stack):
        name, wrappers = _unwrap(part)
        backward |= "transpose" in wrappers
        recomputed |= name == "rematted_computation"
        for piece in pieces(name) if wrappers else [name]:
            if piece.startswith(NODE_MARK) and piece.endswith("]"):
                node = piece[len(NODE_MARK) : -1]
                path.append(node)
            elif piece and piece not in ("checkpoint", "rematted_computation"):
                path.append(piece)
                update |= piece == UPDATE_SCOPE
    phase = UPDATE if update else BACKWARD if backward else FORWARD
    return Scope(node, phase, tuple(path), recomputed)


@functools.lru_cache(maxsize=10_000)
def in_phase(where: Scope, phase: str) -> Scope:
    """The same place, counted to a phase."""
    return dataclasses.replace(where, phase=phase)


def join(outer: str, inner: str) -> str:
    """Name stack of an equation inside the body of another equation."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


def pieces(stack: str) -> list[str]:
    """Parts between separators that are outside all brackets (node names may hold the separator)."""
    parts: list[str] = []
    depth, start = 0, 0
    for i, c in enumerate(stack):
        if c in "([":
            depth += 1
        elif c in ")]":
            depth = max(0, depth - 1)
        elif c == "/" and depth == 0:
            parts.append(stack[start:i])
            start = i + 1
    parts.append(stack[start:])
    return [p for p in parts if p]


def _unwrap(part: str) -> tuple[str, tuple[str, ...]]:
    """``transpose(jvp(x))`` to ``("x", ("transpose", "jvp"))``; the name of a node is never unwrapped."""
    wrappers: list[str] = []
    while part.endswith(")") and "(" in part and not part.startswith(NODE_MARK):
        head, _, rest = part.partition("(")
        wrappers.append(head)
        part = rest[:-1]
    return part, tuple(wrappers)
