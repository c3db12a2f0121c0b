"""A whole graph as the body of a loop."""

from __future__ import annotations

from ... import popxl
from ...popxl import ops
from .moving import move_ops


def repeat_graph(graph: popxl.Graph, repeat_count: int) -> popxl.Graph:
    """Move all operators of `graph` (the main graph too) into a new graph that a loop runs `repeat_count` times.

    Returns
    -------
    popxl.Graph
        The body; `graph` itself when there is nothing to repeat.

    Raises
    ------
    ValueError
        An output of `graph` is made by the moved operators.
    """
    if repeat_count <= 1:
        return graph
    every = [graph._ops[i] for i in sorted(graph._ops)]
    moved = move_ops(every, graph, "repeat_graph")
    with graph, popxl.in_sequence("pass"):
        site = ops.repeat_with_info(moved.graph, repeat_count, inputs_dict=moved.connections())
    moved.order(graph, site._op)
    return moved.graph
