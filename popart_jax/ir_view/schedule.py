"""The order of ops that may run: the one with the highest `schedulePriority` first."""

from __future__ import annotations

import heapq

import onnx_ir as ir

from ..lowering.resolve import needs
from ..model.attribute_names import SCHEDULE_PRIORITY
from . import nodes


def sort(graph: ir.Graph) -> None:
    """Sort a graph by data flow, then by priority, then by place; subgraphs by data flow alone."""
    graph.sort()
    priorities = {node: float(nodes.attribute(node, SCHEDULE_PRIORITY, 0.0)) for node in graph}
    if not any(priorities.values()):
        return
    places = {node: place for place, node in enumerate(graph)}
    sources = {node: {n for v in needs(node) if (n := v.producer()) in places} for node in graph}
    readers: dict[ir.Node, list[ir.Node]] = {node: [] for node in graph}
    for node, read in sources.items():
        for source in read:
            if source is not None:
                readers[source].append(node)
    missing = {node: len(read) for node, read in sources.items()}
    order = list(graph)
    ready = [(-priorities[node], places[node]) for node in order if not missing[node]]
    heapq.heapify(ready)
    found: list[ir.Node] = []
    while ready:
        node = order[heapq.heappop(ready)[1]]
        found.append(node)
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (-priorities[reader], places[reader]))
    graph.remove(found)
    graph.extend(found)
