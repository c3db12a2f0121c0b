"""Sums of many tensors as chains of additions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._building.create import Out, create, result
from .._internal.rewrite import insert_before, take_over
from ..context import get_current_context

if TYPE_CHECKING:
    from .._internal.op import Op
    from ..graph import Graph

__all__ = ["decompose_sum"]


def decompose_sum(graph: Graph) -> Graph:
    """Replace every Sum of more than two tensors by a zero tensor and one Add per operand.

    The last Add gives the Sum's own output tensor.

    Returns
    -------
    Graph
        The same graph.
    """
    for op in [op for op in list(graph._ops.values()) if op.opType() == "Sum" and len(op._inputs()) > 2]:
        _decompose(graph, op)
    return graph


def _decompose(graph: Graph, op: Op) -> None:
    operands, out = list(op._inputs().values()), op._out(0)
    context = get_current_context()
    context._sequencer.push("pass")
    try:
        settings = op._settings
        zero = Out(f"{out.name}_init", out.shape, out.dtype)
        made = [
            create("Init", [], [zero], {"shape": out.shape, "dtype": out.dtype}, graph=graph, settings=settings.copy())
        ]
        total = result(made[0])
        for k, t in enumerate(operands):
            partial = Out(f"{out.name}_sum_{k}", out.shape, out.dtype)
            made.append(create("Add", [total, t], [partial], graph=graph, settings=settings.copy()))
            total = result(made[-1])
        insert_before(op, made)
        take_over(op, made[-1])
    finally:
        context._sequencer.pop()
