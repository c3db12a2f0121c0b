"""Memory that planned operators may take, by IPU; for the cost model."""

from __future__ import annotations

from collections.abc import Iterable

from ... import popxl


def set_available_memory_proportion_by_ipu(ir: popxl.Ir, proportions: Iterable[float]) -> None:
    """Set the proportion of every planned operator of the program by the IPU it is on."""
    shares = list(proportions)
    for graph in ir._pb_ir.getAllGraphs():
        set_graph_available_memory_proportion_by_ipu(popxl.Graph._from_pb(graph), shares)


def set_graph_available_memory_proportion_by_ipu(graph: popxl.Graph, proportions: Iterable[float]) -> None:
    """Set the proportion of every planned operator of a graph; operators on no known IPU take the entry of IPU 0."""
    shares = list(proportions)
    for op in graph._pb_graph.getOps():
        if hasattr(op, "setAvailableMemoryProportion"):
            place = op.getVirtualGraphId() if op.hasVirtualGraphId() else 0
            op.setAvailableMemoryProportion(shares[place if 0 <= place < len(shares) else 0])
