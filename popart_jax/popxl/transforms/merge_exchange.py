"""Merging of independent transfers into one operator."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .._internal.exchange import Part
from .._internal.operands import tensor_of
from .._internal.rewrite import adopt
from ..context import gcg, get_current_context, in_sequence, io_tiles

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["io_tile_exchange", "merge_exchange"]

_EXCHANGES = {"HostLoad", "HostStore", "RemoteLoad", "RemoteLoadInplace", "RemoteStore"}


@contextmanager
def merge_exchange() -> Generator[None]:
    """Transfers created inside (in the current graph) become one operator where none depends on another."""
    graph = gcg()
    created: list[Any] = []
    handle = graph.register_op_created_hook(created.append)
    try:
        yield
    finally:
        graph.remove_op_created_hook(handle)
    merge(graph, [op for op in created if op.opType() in _EXCHANGES])


def merge(graph: Graph, ops: list[Any]) -> None:
    """Merge independent exchanges, neighbours in creation order, into `MultiExchange` operators."""
    from .._internal.schedule import dependencies

    group: list[Any] = []
    before = dependencies(graph, in_place=False)
    constrained = {op.id: {p.id for p in graph._topo_cons.after.get(op, [])} for op in ops}
    ids = {op.id for op in ops}
    for op in sorted(ops, key=lambda o: o.id):
        if group and _depends(op.id, {g.id for g in group}, before, constrained, ids):
            _merge_group(graph, group)
            group = []
        group.append(op)
    _merge_group(graph, group)


def _depends(i: int, others: set[int], before: Any, constrained: Any, exchanges: set[int]) -> bool:
    """Whether an exchange depends on one of the others; `in_sequence` constraints between exchanges do not count."""
    pending, seen = [i], set[int]()
    while pending:
        here = pending.pop()
        for b in before[here]:
            if here in exchanges and b in exchanges and b in constrained.get(here, ()):
                continue
            if b in others:
                return True
            if b not in seen:
                seen.add(b)
                pending.append(b)
    return False


def _merge_group(graph: Graph, group: list[Any]) -> None:
    from .._building.create import create, like

    if len(group) < 2:
        return
    inputs = [t for op in group for t in op._inputs().values()]
    outs = [like(t, "exchanged") for op in group for t in op._outputs().values()]
    writes, reads, written = list[tuple[int, int]](), list[str](), list[str]()
    offset = produced = 0
    for op in group:
        if "__writes" in op._node.attributes:
            writes.append((offset, produced))
        offset += len(op._node.inputs)
        produced += len(op._node.outputs)
        reads += _strings(op, "__state_reads")
        written += _strings(op, "__state_writes")
    with in_sequence("pass"):  # it takes over the constraints of its parts, and no place after the last operator
        merged = create(
            "MultiExchange", inputs, outs, {}, writes=writes, graph=graph, settings=group[0]._settings.copy(),
            reads_state=dict.fromkeys(reads), writes_state=dict.fromkeys(written),
        )  # fmt: skip
    merged._node.meta["parts"] = [Part.of(op._node) for op in group]
    _replace(graph, group, merged)


def _strings(op: Any, name: str) -> list[str]:
    attr = op._node.attributes.get(name)
    return [] if attr is None else list(attr.as_strings())


def _replace(graph: Graph, group: list[Any], merged: Any) -> None:
    """Put the merged operator in the place of the last part; it takes over the output tensors of all parts."""
    last = max(group, key=lambda op: op.id)
    nodes = graph._graph
    nodes.remove(merged._node)
    nodes.insert_after(last._node, merged._node)
    position = 0
    sequencer = get_current_context()._sequencer
    for part, op in zip(merged._node.meta["parts"], group, strict=True):
        for tensor in op._outputs().values():
            value = merged._node.outputs[position]
            graph._tensors.pop(tensor_of(value).id, None)
            adopt(graph, tensor, value)
            position += 1
        part.outputs = [merged._node.outputs[position - len(part.outputs) + k] for k in range(len(part.outputs))]
        graph._topo_cons.replace(op, merged)
        sequencer.forget(op, merged)
        nodes.remove(op._node)
        op.disconnectAllInputs()
        del graph._ops[op.id]


@contextmanager
def io_tile_exchange(verify_overlap: bool = True) -> Generator[None]:
    """Transfers on the IO tiles, merged, without order among themselves.

    Parameters
    ----------
    verify_overlap : bool
        Check that one operator is left of what was created inside, besides Init operators.

    Raises
    ------
    RuntimeError
        More are left.
    """
    graph = gcg()
    first = graph.ir._next_op
    with io_tiles(), in_sequence(False), merge_exchange():
        yield
    left = [op for i, op in graph._ops.items() if i >= first and op.opType() != "Init"]
    if verify_overlap and len(left) > 1:
        raise RuntimeError(
            f"Could not merge the exchanges into one operator: {[op.debugName() for op in left]} are left."
        )
