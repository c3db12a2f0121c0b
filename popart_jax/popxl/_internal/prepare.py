"""What constructing a session does to an Ir before it is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import popart_exception
from .ambiguity import check_graph
from .cleanup import remove_isolated_tensors, remove_unreachable_graphs
from .patterns import Patterns, PatternsLevel, apply

if TYPE_CHECKING:
    from ..ir import Ir


def prepare(owner: Ir) -> None:
    """Clean up, apply the mandatory patterns, check order and executability; the Ir is frozen afterwards.

    Raises
    ------
    popart_exception
        In-place updates that are not ordered, or operators without executable form.
    """
    remove_unreachable_graphs(owner)
    for graph in list(owner._graphs.values()):
        apply(graph, Patterns(PatternsLevel.Minimal))
        if graph is not owner.main_graph:
            remove_isolated_tensors(graph)
    if getattr(owner._options, "enableInplaceAmbiguityChecking", True):
        for graph in owner._graphs.values():
            check_graph(graph)
    for graph in owner._graphs.values():
        for op in graph._ops.values():
            reason = op._options.get("unexecutable")
            if reason:
                raise popart_exception(f"{op.debugName()} can't be run: {reason}")
    owner._prepared = True
