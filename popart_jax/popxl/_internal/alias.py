"""Which tensors of a graph share storage."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ...lowering.effects import effect_of
from ..graph import Graph
from ..tensor import Tensor
from .operands import tensor_of


def shared_pairs(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    """(operand, result) pairs of a node that are on the same storage."""
    effect = effect_of(node)
    if effect is None:
        return []
    places = [(i, r) for i, r in effect.writes if r < len(node.outputs)] + [(i, 0) for i in effect.views]
    return [(value, node.outputs[r]) for i, r in places if (value := node.inputs[i]) is not None]


class Storages:
    """Which values are known to be on one storage: each leads to one of them, the root."""

    def __init__(self) -> None:
        self._parents: dict[ir.Value, ir.Value] = {}

    def root(self, value: ir.Value) -> ir.Value:
        """The value that stands for the storage of `value`."""
        while (parent := self._parents.get(value)) is not None:
            grandparent = self._parents.get(parent)
            if grandparent is not None:
                self._parents[value] = grandparent
            value = parent
        return value

    def join(self, root: ir.Value, other: ir.Value) -> None:
        """Put the storage of one root, the second, on that of the first."""
        if root is not other:
            self._parents[other] = root


def alias_sets(graph: Graph) -> dict[str, set[str]]:
    """Tensor id -> ids of all tensors on the same storage (itself included), for tensors that share any."""
    storages, values = Storages(), dict[ir.Value, None]()
    for op in graph._ops.values():
        for value, result in shared_pairs(op._node):
            storages.join(storages.root(value), storages.root(result))
            values |= {value: None, result: None}
    groups: dict[ir.Value, set[str]] = {}
    for value in values:
        groups.setdefault(storages.root(value), set()).add(value.name or "")
    return {name: group for group in groups.values() for name in group}


def aliases(tensor: Tensor) -> list[Tensor]:
    """All tensors on the storage of `tensor`, itself included; only their own nodes are looked at."""
    found, left = {tensor.id: tensor}, [tensor._value]
    while left:
        for value in _beside(left.pop()):
            if (value.name or "") not in found:
                found[value.name or ""] = tensor_of(value)
                left.append(value)
    return [found[name] for name in sorted(found)]


def _beside(value: ir.Value) -> Iterator[ir.Value]:
    """Values that a node beside `value` puts on the same storage."""
    producer = value.producer()
    for node in (*(() if producer is None else (producer,)), *(node for node, _ in value.uses())):
        for pair in shared_pairs(node):
            yield from pair if value in pair else ()
