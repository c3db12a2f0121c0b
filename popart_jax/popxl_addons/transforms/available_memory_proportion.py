"""Memory that planned operators may take, by IPU; for the cost model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import popxl


def set_available_memory_proportion_by_ipu(ir: popxl.Ir, proportions: Iterable[float]) -> None:
    """Set the proportion of every planned operator of the program by the IPU it is on."""
    shares = list(proportions)
    for graph in ir._pb_ir.getAllGraphs():
        set_graph_available_memory_proportion_by_ipu(popxl.Graph._from_pb(graph), shares)


def set_graph_available_memory_proportion_by_ipu(graph: popxl.Graph, proportions: Iterable[float]) -> None:
    """Set the proportion of every planned operator of a graph and of the graphs that it calls, directly or not.

    Operators on no known IPU, or on one beyond the list, take the entry of IPU 0.
    """
    shares, seen, pending = list(proportions), set[str](), [graph]
    while pending:
        now = pending.pop()
        if now.id in seen:
            continue
        seen.add(now.id)
        pending.extend(now.called_graphs)
        for op in now._pb_graph.getOps():
            place = op.getVirtualGraphId() if op.hasVirtualGraphId() else 0
            _set(op, shares[place if 0 <= place < len(shares) else 0])


def _set(op: Any, share: float) -> None:
    """Give an operator its proportion, if it is planned; convolutions have it among their options."""
    if hasattr(op, "setConvOptions"):
        options = op.getConvOptions()
        options.availableMemoryProportions = [share]
        op.setConvOptions(options)
    elif hasattr(op, "setAvailableMemoryProportion"):
        op.setAvailableMemoryProportion(share)
    elif "available_memory_proportion" in op._options:
        op._options["available_memory_proportion"] = share
