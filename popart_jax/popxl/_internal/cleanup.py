"""Removal of unused tensors and graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..graph import Graph
from ..ir import Ir
from .enums import TensorType


def remove_isolated_tensors(graph: Graph, *, variables: bool = False, constants: bool = False) -> None:
    """Remove tensors without producer and consumer that are neither inputs nor outputs.

    Streams stay, and, if told so, variables and constants; all of them stay reachable through their own objects.
    """
    kept = {TensorType.Stream, *([TensorType.Variable] * variables), *([TensorType.Const] * constants)}
    bound = {t.id for t in (*graph.inputs, *graph.outputs)}
    for t in list(graph._tensors.values()):
        if t._kind in kept or t.id in bound:
            continue
        if t._value.producer() is None and not t._value.uses():
            graph._remove_tensor(t)


def isolated_remover(graphs: Callable[[Any], Iterable[Graph]]) -> Callable[..., None]:
    """The method of a view that removes isolated tensors from these graphs of it, with PopART's names of what stays.

    Inputs and outputs of the host stay in any case, since their streams hold them.
    """

    def remove(
        self: Any,
        retainUsedIOTensors: bool = False,
        retainAllIOTensors: bool = False,
        retainVarTensors: bool = False,
        retainConstTensors: bool = False,
    ) -> None:
        for graph in graphs(self):
            remove_isolated_tensors(graph, variables=retainVarTensors, constants=retainConstTensors)

    return remove


def reachable(owner: Ir) -> list[Graph]:
    """Graphs that the main graph calls, directly or not, and itself."""
    found: dict[Graph, None] = {}
    pending = [owner.main_graph]
    while pending:
        graph = pending.pop()
        if graph not in found:
            found[graph] = None
            pending.extend(graph.called_graphs)
    return list(found)


def remove_unreachable_graphs(owner: Ir) -> None:
    """Forget graphs that nothing calls."""
    keep = {g.id for g in reachable(owner)}
    for name in [n for n in owner._graphs if n not in keep]:
        del owner._graphs[name]
