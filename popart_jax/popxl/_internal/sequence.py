"""Ordering constraints between operators, and those that `in_sequence` blocks make."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

Key = Hashable


@dataclass
class TopoCons:
    """Ordering constraints of one graph: `after[op]` holds the operators that must run before `op`."""

    after: dict[Any, list[Any]] = field(default_factory=dict[Any, list[Any]])

    def insert(self, before: Any, after: Any, tied: bool = False) -> None:
        """`before` runs before `after`."""
        followed = self.after.setdefault(after, [])
        if before not in followed:
            followed.append(before)

    def remove(self, op: Any) -> None:
        """Remove an operator that leaves the graph; operators before and after it stay ordered."""
        predecessors = self.after.pop(op, [])
        for other, befores in self.after.items():
            if op in befores:
                befores.remove(op)
                for p in predecessors:
                    self.insert(p, other)

    def replace(self, old: Any, new: Any) -> None:
        """`new` takes the place of `old`."""
        for p in self.after.pop(old, []):
            if p is not new:
                self.insert(p, new)
        for other, befores in self.after.items():
            if old in befores:
                befores.remove(old)
                if other is not new:
                    self.insert(new, other)

    def transferToSubgraph(self, *args: Any) -> None:
        """Constraints move together with their operators here, so nothing is left to transfer."""


@dataclass
class _Frame:
    """One `in_sequence` block: by key, the operators that the next operators must wait for."""

    mode: bool | str
    last: dict[Key, list[Any]] = field(default_factory=dict[Key, list[Any]])


class Sequencer:
    """The stack of `in_sequence` blocks; a sequence is kept per (graph, execution context)."""

    def __init__(self) -> None:
        self._frames: list[_Frame] = []

    @property
    def mode(self) -> bool | str | None:
        """Mode of the innermost block, None outside."""
        return self._frames[-1].mode if self._frames else None

    def push(self, mode: bool | str) -> None:
        """Enter a block."""
        self._frames.append(_Frame(mode))

    def pop(self) -> None:
        """Leave the innermost block, which counts as one unit in the block around it."""
        frame = self._frames.pop()
        if not self._frames or frame.mode == "pass":
            return
        outer = self._frames[-1]
        for key, ops in frame.last.items():
            if outer.mode is True:
                outer.last[key] = list(ops)
            else:
                outer.last.setdefault(key, []).extend(ops)

    def _before(self, depth: int, key: Key) -> list[Any]:
        """Operators of enclosing blocks that an operator of the block at `depth` waits for."""
        for frame in reversed(self._frames[:depth]):
            if frame.mode == "pass":
                return []
            if frame.mode is True and key in frame.last:
                return frame.last[key]
        return []

    def created(self, op: Any, key: Key, constraints: TopoCons) -> None:
        """Order a new operator; ValueError where the innermost block has an unknown mode."""
        if not self._frames or self.mode == "pass":
            return
        if self.mode not in (True, False):
            raise ValueError(
                f"`in_sequence` mode not understood: {self.mode}. Must be one of `True`, `False`, `'pass'`."
            )
        frame = self._frames[-1]
        before = self._before(len(self._frames) - 1, key)
        if frame.mode is True:
            before = frame.last.get(key) or before
            frame.last[key] = [op]
        else:
            frame.last.setdefault(key, []).append(op)
        for other in before:
            constraints.insert(other, op)

    def forget(self, op: Any, replacement: Any = None) -> None:
        """An operator left its graph (or became another one)."""
        for frame in self._frames:
            for ops in frame.last.values():
                if op in ops:
                    ops[ops.index(op) : ops.index(op) + 1] = [] if replacement is None else [replacement]
