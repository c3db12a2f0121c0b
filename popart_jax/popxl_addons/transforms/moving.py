"""Move operators of a graph into a graph of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import popxl
from ...popxl._internal.operands import op_of
from ...popxl._internal.schedule import dependencies
from ...popxl.context import get_current_context
from ...popxl.tensor import Constant

Moved = dict[popxl.Tensor, popxl.Tensor]


@dataclass(frozen=True)
class Extracted:
    """A graph of moved operators."""

    graph: popxl.Graph
    inputs: Moved  # tensor of the old graph to the input of the new graph for it
    ops: tuple[Any, ...]  # the moved operators
    earlier: tuple[Any, ...]  # operators of the old graph that must run before the moved ones

    def connections(self) -> Moved:
        """Input to tensor of the old graph, as `ops.call` and `ops.repeat` take it."""
        return {inner: outer for outer, inner in self.inputs.items()}

    def order(self, source: popxl.Graph, site: Any) -> None:
        """Give the operator `site` of the old graph the moved operators' place in the order."""
        take_place(source, self.ops, self.earlier, site)


def take_place(source: popxl.Graph, moved: Iterable[Any], earlier: Iterable[Any], site: Any) -> None:
    """Order the operator `site` of `source` as the moved operators were."""
    sequencer = get_current_context()._sequencer
    for op in moved:
        source._topo_cons.replace(op, site)
        sequencer.forget(op, site)
    for op in earlier:
        source._topo_cons.insert(op, site)


def move_ops(ops: Sequence[Any], source: popxl.Graph, name: str) -> Extracted:
    """Take operators, in creation order, out of `source` into a new graph.

    Tensors that they read from outside become by-reference inputs (so that updates of variables are kept), constants
    are copied. Order constraints among the operators move along. Raises ValueError where a tensor made by these
    operators is used by others, or is an output of `source`.
    """
    owner = source.ir
    target = owner._new_graph(owner._subgraph_id(name))
    chosen = {op.id for op in ops}
    check_closed(ops, source)
    inputs: Moved = {}
    constants: Moved = {}
    for op in ops:
        for i, tensor in op._inputs().items():
            producer = tensor._value.producer()
            if producer is None or op_of(producer).id not in chosen:
                inner = stand_in(tensor, target, constants if isinstance(tensor, Constant) else inputs)
                op._node.replace_input_with(i, inner._value)
    for op in ops:
        rehome(op, source, target)
    return Extracted(target, inputs, tuple(ops), move_constraints(source, dict.fromkeys(ops, target)))


def check_closed(ops: Sequence[Any], source: popxl.Graph) -> None:
    """Raise ValueError where a result of the operators is used elsewhere, or is an output of `source`."""
    chosen = {op.id for op in ops}
    for op in ops:
        for tensor in op._outputs().values():
            outside = [n for n, _ in tensor._value.uses() if op_of(n).id not in chosen]
            if outside or tensor in source.outputs:
                raise ValueError(
                    f"tensor {tensor.id!r} is made in the moved part and used outside it; store it with host_store, or "
                    "update a variable with it"
                )


def stand_in(tensor: popxl.Tensor, target: popxl.Graph, known: Moved, by_ref: bool = True) -> popxl.Tensor:
    """The tensor of `target` for a tensor of another graph: a copy of a constant, an input for any other tensor."""
    if tensor not in known:
        if isinstance(tensor, Constant):
            with target:
                known[tensor] = popxl.constant(tensor._host, tensor.dtype, tensor.name)
        else:
            known[tensor] = target._add_input_like(tensor, by_ref, local_name(tensor))
    return known[tensor]


def local_name(tensor: popxl.Tensor) -> str:
    """Name without scopes."""
    return tensor.name.rpartition("/")[2]


def rehome(op: Any, source: popxl.Graph, target: popxl.Graph) -> None:
    """Move one operator; its operands must have been replaced."""
    source._graph.remove(op._node, safe=False)
    target._graph.append(op._node)
    del source._ops[op.id]
    target._ops[op.id] = op
    op._graph = target
    for tensor in op._outputs().values():
        local = tensor.name
        del source._tensors[tensor.id]
        tensor._graph = target
        tensor._value.name = target._create_tensor_id(local)
        target._tensors[tensor._value.name] = tensor


def move_constraints(source: popxl.Graph, home: Mapping[Any, popxl.Graph]) -> tuple[Any, ...]:
    """Move order constraints along with operators; returns the operators outside that the moved ones waited for."""
    earlier: dict[int, Any] = {}
    for op, target in home.items():
        for before in source._topo_cons.after.pop(op, []):
            if before not in home:
                earlier[before.id] = before
            elif home[before] is target:
                target._topo_cons.insert(before, op)
    return tuple(earlier.values())


def order_through_others(source: popxl.Graph, part_of: Mapping[int, Any]) -> list[tuple[int, int]]:
    """Pairs (earlier, later) within one part, whose order follows from operators of other parts between them."""
    before = dependencies(source, in_place=False)
    reached: dict[int, dict[Any, set[int]]] = {}
    pairs: list[tuple[int, int]] = []
    for i in sorted(before):
        nearest: dict[Any, set[int]] = {}
        for b in before[i]:
            for part, found in reached.get(b, {}).items():
                nearest.setdefault(part, set()).update(found)
        own = part_of.get(i)
        direct = {b for b in before[i] if b in part_of and part_of[b] == own}
        pairs.extend((b, i) for b in nearest.get(own, set()) - direct if own is not None)
        if own is not None:
            nearest[own] = {i}
        reached[i] = nearest
    return pairs
