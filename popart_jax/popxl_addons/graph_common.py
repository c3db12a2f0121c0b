"""Type names shared by the graph modules."""

from __future__ import annotations

from collections.abc import Mapping

from .. import popxl
from ..popxl.transforms.autodiff import GradGraphInfo
from .graph import GradGraphInfoLike as GradGraphInfoLike
from .graph import GraphLike as GraphLike
from .graph import GraphWithNamedArgs

CalledGraphsGradInfoLike = Mapping[GraphLike, GradGraphInfoLike]
"""Gradient graphs of called graphs, however they are described."""
CalledGraphsGradInfo = Mapping[popxl.Graph, GradGraphInfo]
"""Gradient graphs of called graphs, by graph."""


def plain_grad_info(given: CalledGraphsGradInfoLike | None) -> dict[popxl.Graph, GradGraphInfo]:
    """The mapping with plain graphs and plain gradient information on both sides."""
    return {
        (graph if isinstance(graph, popxl.Graph) else graph.graph): (
            info.grad_graph_info if isinstance(info, GraphWithNamedArgs) else info
        )
        for graph, info in (given or {}).items()
    }
