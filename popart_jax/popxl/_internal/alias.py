"""Which tensors of a graph share storage."""

from __future__ import annotations

from ...lowering.effects import effect_of
from ..graph import Graph
from ..tensor import Tensor


def alias_sets(graph: Graph) -> dict[str, set[str]]:
    """Tensor id -> ids of all tensors on the same storage (itself included), for tensors that share any."""
    parent: dict[str, str] = {}

    def root(x: str) -> str:
        while parent.setdefault(x, x) != x:
            x = parent[x]
        return x

    for op in graph._ops.values():
        effect = effect_of(op._node)
        if effect is None:
            continue
        n = len(op._node.outputs)
        pairs = [(i, r) for i, r in effect.writes if r < n] + [(i, 0) for i in effect.views]
        for i, r in pairs:
            value = op._node.inputs[i]
            if value is not None:
                parent[root(op._node.outputs[r].name or "")] = root(value.name or "")
    groups: dict[str, set[str]] = {}
    for name in list(parent):
        groups.setdefault(root(name), set()).add(name)
    return {name: group for group in groups.values() for name in group}


def aliases(tensor: Tensor) -> list[Tensor]:
    """All tensors on the storage of `tensor`, itself included."""
    found = alias_sets(tensor._graph).get(tensor.id, set())
    return [tensor._graph._tensors[name] for name in sorted(found)] or [tensor]
