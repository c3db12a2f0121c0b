"""Graphs that call themselves: PopXL has no such programs, since every call is compiled as a part of its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import popart_exception

if TYPE_CHECKING:
    from ..graph import Graph


def refuse_recursion(graph: Graph) -> None:
    """Raise popart_exception where a graph, or one that it calls, directly or not, calls itself."""
    open_calls = {graph: iter(graph.called_graphs)}
    done: set[Graph] = set()
    while open_calls:
        caller = next(reversed(open_calls))
        called = next(open_calls[caller], None)
        if called is None:
            done.add(caller)
            del open_calls[caller]
        elif called in open_calls:
            circle = [*open_calls][[*open_calls].index(called) :]
            names = " calls ".join(g.name or "the main graph" for g in (*circle, called))
            raise popart_exception(f"A graph can't call itself: {names}.\n  fix: repeat it by popxl.ops.repeat.")
        elif called not in done:
            open_calls[called] = iter(called.called_graphs)
