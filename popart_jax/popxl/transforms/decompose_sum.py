"""Sums of many tensors as chains of additions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._building.checks import check_kind
from .._building.create import Out, create, result
from .._internal.rewrite import insert_before, take_over
from ..context import in_sequence
from ..graph import Graph

if TYPE_CHECKING:
    from .._internal.op import Op

__all__ = ["decompose_sum"]


def decompose_sum(graph: Graph) -> Graph:
    """Replace every Sum of more than two tensors by a zero tensor and one Add per operand.

    The last Add gives the Sum's own output tensor.

    Returns
    -------
    Graph
        The same graph.
    """
    check_kind(Graph, graph=graph)
    for op in [op for op in list(graph._ops.values()) if op.opType() == "Sum" and len(op._inputs()) > 2]:
        _decompose(graph, op)
    return graph


def _decompose(graph: Graph, op: Op) -> None:
    operands, out = list(op._inputs().values()), op._out(0)
    zero, attributes = Out(f"{out.name}_init", out.shape, out.dtype), {"shape": out.shape, "dtype": out.dtype}
    with in_sequence("pass"):
        made = [create("Init", [], [zero], attributes, graph=graph, settings=op._settings.copy())]
        for k, t in enumerate(operands):
            partial = Out(f"{out.name}_sum_{k}", out.shape, out.dtype)
            made.append(create("Add", [result(made[-1]), t], [partial], graph=graph, settings=op._settings.copy()))
        insert_before(op, made)
        take_over(op, made[-1])
