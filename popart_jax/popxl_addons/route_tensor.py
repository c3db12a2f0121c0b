"""Bring a tensor of an outer graph into a graph that is called, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import onnx_ir as ir

from .. import popxl
from ..popxl._internal.modified import mark_modified

Path = tuple[str, ...]
_ROUTED = "_routed_tensors"


def is_subgraph(parent: popxl.Graph, subgraph: popxl.Graph) -> bool:
    """Whether `subgraph` is called from `parent`, directly or through others."""
    return bool(called_graph_paths(parent, subgraph))


def called_graph_paths(parent_graph: popxl.Graph, subgraph: popxl.Graph) -> set[Path]:
    """Every chain of graph ids from `parent_graph` to `subgraph`, along call and loop operators."""
    found: set[Path] = set()
    pending: list[tuple[popxl.Graph, Path]] = [(parent_graph, (parent_graph.id,))]
    while pending:
        graph, path = pending.pop()
        for called in graph.called_graphs:
            longer = (*path, called.id)
            if called == subgraph:
                found.add(longer)
            pending.append((called, longer))
    return found


def route_tensor_into_graph(
    tensor: popxl.Tensor, graph: popxl.Graph | None = None, modified: bool | Iterable[Any] = False
) -> popxl.Tensor:
    """Pass `tensor` of an outer graph into `graph` (default: the current one); returns the tensor there.

    Each graph on the way gets one input and each of its call sites one operand; routing again reuses them.

    Parameters
    ----------
    modified : bool or iterable
        Changes inside are written back along the way.

    Raises
    ------
    ValueError
        No chain of calls leads from the tensor's graph to `graph`.
    """
    target = popxl.gcg() if graph is None else graph
    if tensor in target:
        return tensor
    paths = called_graph_paths(tensor._graph, target)
    if not paths:
        raise ValueError(
            f"{tensor} is not in the graph {target.name}. Additionally, the tensor is not in a known parent graph so "
            "cannot be moved into the graph."
        )
    writes = bool(modified) if isinstance(modified, bool) else bool(list(modified))
    inner: dict[str, popxl.Tensor] = {tensor._graph.id: tensor}
    for path in paths:
        _check(path, tensor, writes)
    for path in sorted(paths, key=len):
        connect_tensor_to_ops_on_path(path, tensor, inner, writes)
    return inner[target.id]


def _callers(path: Path, owner: popxl.Ir) -> Iterator[tuple[popxl.Graph, popxl.Graph, Any]]:
    """(calling graph, called graph, operator) for every operator along a chain."""
    for outer_id, inner_id in pairwise(path):
        outer, called = (popxl.Graph._from_pb(owner._pb_ir.getGraph(i)) for i in (outer_id, inner_id))
        for op in outer._ops.values():
            if called in op._called():
                yield outer, called, op


def _check(path: Path, tensor: popxl.Tensor, writes: bool) -> None:
    """Raise NotImplementedError unless every operator of a chain can take the tensor.

    A conditional can't: it writes nothing back.
    """
    for _, _, op in _callers(path, tensor.ir):
        if op.opType() not in ("Call", "Loop", "If"):
            raise NotImplementedError(f"tensors can't be routed through {op.debugName()}; it takes no more inputs")
        if writes and op.opType() == "If":
            raise NotImplementedError(
                f"{op.debugName()} writes nothing back, so {tensor!r} can't be routed through it with modified=True"
            )


def connect_tensor_to_ops_on_path(
    path: Path, from_tensor: popxl.Tensor, input_tensors: dict[str, popxl.Tensor], modified: bool
) -> None:
    """Add the input to each graph of a chain and connect the operators that call it."""
    for outer, called, op in _callers(path, from_tensor.ir):
        stand_in = _input(called, from_tensor, input_tensors)
        _connect(op, input_tensors[outer.id], called, stand_in, modified)


def _input(graph: popxl.Graph, source: popxl.Tensor, known: dict[str, popxl.Tensor]) -> popxl.Tensor:
    """The graph's input for the routed tensor; made once."""
    routed: dict[str, popxl.Tensor] = graph.__dict__.setdefault(_ROUTED, {})
    if source.id not in routed:
        routed[source.id] = graph._add_input_like(source, name=source.name.rpartition("/")[2])
    known[graph.id] = routed[source.id]
    return routed[source.id]


def _connect(op: Any, outer: popxl.Tensor, called: popxl.Graph, inner: popxl.Tensor, modified: bool) -> None:
    """Feed an input of a called graph from `outer` at one call, loop or conditional."""
    position = called.inputs.index(inner)
    if op.opType() == "If":
        _connect_branches(op, outer, called, position)
        return
    node = op._node
    if position >= len(node.inputs):
        node.resize_inputs(position + 1)
    if node.inputs[position] is None:
        node.replace_input_with(position, outer._value)
    if modified:
        mark_modified(op, position)


def _connect_branches(op: Any, outer: popxl.Tensor, called: popxl.Graph, position: int) -> None:
    """Operands of a conditional: the condition, those of the first branch, those of the second."""
    node = op._node
    first, second = (node.attributes[name].value.meta["graph"] for name in ("then_branch", "else_branch"))
    split = node.attributes["then_inputs"].as_int()
    yes, no = list(node.inputs[1 : split + 1]), list(node.inputs[split + 1 :])
    for branch, values in ((first, yes), (second, no)):
        if branch == called and position >= len(values):
            values.append(outer._value)
    operands = [node.inputs[0], *yes, *no]
    node.resize_inputs(len(operands))
    for i, value in enumerate(operands):
        node.replace_input_with(i, value)
    node.attributes["then_inputs"] = ir.AttrInt64("then_inputs", len(yes))


def connect_call_op(op: Any, tensor: popxl.Tensor, input_tensors: dict[str, popxl.Tensor], modified: Any) -> None:
    """Feed the routed input of a call from `tensor`."""
    called = popxl.Graph._from_pb(op.getCalledGraph())
    _connect(op, tensor, called, input_tensors[called.id], bool(modified))


connect_loop_op = connect_call_op
