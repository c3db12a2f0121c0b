"""Move operators of a graph into a graph of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import popxl
from ...popxl.context import get_current_context
from ...popxl.tensor import Constant

Moved = dict[popxl.Tensor, popxl.Tensor]


@dataclass(frozen=True)
class Extracted:
    """A graph of moved operators.

    Attributes
    ----------
    graph : popxl.Graph
    inputs : dict of Tensor to Tensor
        Tensor of the old graph to the input that stands for it.
    ops : tuple of operators
        What was moved.
    earlier : tuple of operators
        Operators of the old graph that must run before.
    """

    graph: popxl.Graph
    inputs: Moved
    ops: tuple[Any, ...]
    earlier: tuple[Any, ...]

    def connections(self) -> Moved:
        """Input to tensor of the old graph, as `ops.call` and `ops.repeat` take it."""
        return {inner: outer for outer, inner in self.inputs.items()}

    def order(self, source: popxl.Graph, site: Any) -> None:
        """The operator `site` of the old graph takes the place of the moved ones in its order."""
        take_place(site, self.ops, self.earlier, source)


def take_place(site: Any, ops: Sequence[Any], earlier: Sequence[Any], source: popxl.Graph) -> None:
    """`site` stands in the order of `source` where `ops` stood, after `earlier`."""
    sequencer = get_current_context()._sequencer
    for op in ops:
        source._topo_cons.replace(op, site)
        sequencer.forget(op, site)
    for op in earlier:
        source._topo_cons.insert(op, site)


def move_ops(ops: Sequence[Any], source: popxl.Graph, name: str) -> Extracted:
    """Take operators out of `source` into a new graph.

    Tensors that they read from outside become by-reference inputs (so that updates of variables are kept), constants
    are copied. Order constraints among the operators move along.

    Parameters
    ----------
    ops : sequence of operators
        In creation order.
    name : str
        Base name of the new graph.

    Raises
    ------
    ValueError
        A tensor made by these operators is used by others, or is an output of `source`.
    """
    owner = source.ir
    target = owner._new_graph(owner._subgraph_id(name))
    chosen = {op.id for op in ops}
    _check_closed(ops, chosen, source)
    inputs: Moved = {}
    constants: Moved = {}
    for op in ops:
        for i, tensor in op._inputs().items():
            producer = tensor._value.producer()
            if producer is None or producer.meta["op"].id not in chosen:
                inner = stand_in(tensor, target, inputs, constants)
                op._node.replace_input_with(i, inner._value)
    for op in ops:
        rehome(op, source, target)
    return Extracted(target, inputs, tuple(ops), move_constraints(ops, chosen, source, target))


def _check_closed(ops: Sequence[Any], chosen: set[int], source: popxl.Graph) -> None:
    for op in ops:
        for tensor in op._outputs().values():
            outside = [n for n, _ in tensor._value.uses() if n.meta["op"].id not in chosen]
            if outside or tensor in source.outputs:
                raise ValueError(
                    f"tensor {tensor.id!r} is made in the moved part and used outside it; store it with host_store, or "
                    "update a variable with it"
                )


def stand_in(
    tensor: popxl.Tensor, target: popxl.Graph, inputs: Moved, constants: Moved, by_ref: bool = True
) -> popxl.Tensor:
    """What stands for an outer tensor in `target`: a copy of a constant, or an input made at the first request."""
    known = constants if isinstance(tensor, Constant) else inputs
    if tensor not in known:
        if isinstance(tensor, Constant):
            with target:
                known[tensor] = popxl.constant(tensor._host, tensor.dtype, tensor.name)
        else:
            local = tensor.name.rpartition("/")[2]
            known[tensor] = target._add_input(tensor.shape, tensor.dtype, local, by_ref, tensor.meta_shape)
    return known[tensor]


def rehome(op: Any, source: popxl.Graph, target: popxl.Graph) -> None:
    """Move one operator and its outputs from one graph to another."""
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


def move_constraints(ops: Sequence[Any], chosen: set[int], source: popxl.Graph, target: popxl.Graph) -> tuple[Any, ...]:
    """Order among the moved operators moves along; returns what they waited for outside."""
    earlier: dict[int, Any] = {}
    for op in ops:
        for before in source._topo_cons.after.pop(op, []):
            if before.id in chosen:
                target._topo_cons.insert(before, op)
            else:
                earlier[before.id] = before
    return tuple(earlier.values())
