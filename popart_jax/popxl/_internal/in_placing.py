"""Operators become in-place: which operands may be overwritten, and what must run before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import onnx_ir as ir

from .alias import Storages, shared_pairs
from .enums import TensorType
from .operands import op_of, tensor_of
from .pattern_rules import inplace_forms, is_view, shared_operands, turn_in_place


@dataclass(eq=False)
class _Storage:
    """What the tensors on one storage have in common."""

    kept: bool  # an output of the graph, or the caller's
    last: int  # place in the schedule of the last reader
    readers: list[Any] = field(default_factory=list[Any])
    unordered: list[Any] = field(default_factory=list[Any])  # readers without a constraint to run before a writer

    def join(self, other: _Storage) -> None:
        """Take in the tensors of another storage."""
        self.kept, self.last = self.kept or other.kept, max(self.last, other.last)
        self.readers += other.readers
        self.unordered += other.unordered


class InPlacing:
    """Makes operators of a graph in-place, one after the other in the order of its schedule.

    Each step looks at the operands' storages as a whole, so that its cost does not grow with their number of tensors.
    """

    def __init__(self, graph: Any, ops: Iterable[Any]) -> None:
        self._graph = graph
        self._order = {op.id: k for k, op in enumerate(ops)}
        self._joined = Storages()
        self._storages: dict[ir.Value, _Storage] = {}
        for op in graph._ops.values():
            for value, result in shared_pairs(op._node):
                self._join(value, result)

    def apply(self, op: Any) -> None:
        """Turn an operator into the best of its in-place forms that its operands allow."""
        for position, op_type in inplace_forms(op):
            shared = shared_operands(op, position)
            if all(self._is_free(op, i) for i in shared):
                self._constrain(op, [self._of(op._in(i)._value) for i in shared])
                turn_in_place(op, op_type, position, shared)
                for i in shared:
                    self._join(op._in(i)._value, op._out(0)._value)
                return

    def _is_free(self, op: Any, position: int) -> bool:
        """Whether an operand has the output's shape and type, and all other readers of its storage run before."""
        t, out = op._in(position), op._out(0)
        if t._kind is not TensorType.ActGrad or t.dtype != out.dtype or (t.shape != out.shape and not is_view(op)):
            return False
        storage = self._of(t._value)
        others = (u._value for i, u in op._inputs().items() if i != position)
        read_twice = any(self._of(v) is storage for v in others)
        return not (read_twice or storage.kept or storage.last > self._order[op.id])

    def _constrain(self, op: Any, storages: list[_Storage]) -> None:
        """Order the readers of the storages before an operator that becomes in-place.

        A concatenation joins several storages, so writers of one of them are also ordered with readers of the others.
        """
        if len(storages) > 1:
            readers = {r.id: r for s in storages for r in s.readers if r is not op}
            for before, after in pairwise(sorted(readers.values(), key=lambda r: self._order[r.id])):
                self._graph._topo_cons.insert(before, after)
        for storage in storages:
            for reader in storage.unordered:
                if reader is not op:
                    self._graph._topo_cons.insert(reader, op)
            storage.unordered = [op]

    def _of(self, value: ir.Value) -> _Storage:
        root = self._joined.root(value)
        if root not in self._storages:
            readers = [op_of(node) for node, _ in root.uses()]
            kept = root.is_graph_output() or tensor_of(root) in self._graph._by_ref_inputs
            last = max((self._order[r.id] for r in readers), default=-1)
            self._storages[root] = _Storage(kept, last, readers, list(readers))
        return self._storages[root]

    def _join(self, value: ir.Value, result: ir.Value) -> None:
        """Two tensors are on one storage from now on; the larger one takes the other in."""
        large, small = self._of(value), self._of(result)
        roots = [self._joined.root(value), self._joined.root(result)]
        if large is small:
            return
        if len(large.readers) < len(small.readers):
            large, small, roots = small, large, roots[::-1]
        large.join(small)
        self._joined.join(*roots)
        del self._storages[roots[1]]
