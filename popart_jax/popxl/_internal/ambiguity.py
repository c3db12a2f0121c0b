"""Whether every write to a storage is ordered with everything else that uses the storage."""

from __future__ import annotations

from ...errors import popart_exception
from ..graph import Graph
from .schedule import dependencies, in_place_pairs


def check_graph(graph: Graph) -> None:
    """Each pair (write, other use) of a storage is ordered by data or by `in_sequence`.

    Raises
    ------
    popart_exception
        A pair is not; the message names the operators.
    """
    pairs = in_place_pairs(graph)
    if not pairs:
        return
    before = dependencies(graph, in_place=False)
    reach = _closure(before)
    place = {i: k for k, i in enumerate(sorted(before))}
    for a, b in pairs:
        contexts = {graph._ops[i]._settings.executionContext for i in (a, b)}
        if len(contexts) > 1 or reach[b] >> place[a] & 1 or reach[a] >> place[b] & 1:
            continue
        first, second = (graph._ops[i].debugName() for i in (a, b))
        where = f"graph {graph.id!r}" if graph.id else "the main graph"
        raise popart_exception(
            f"Inplacing ambiguity detected. In {where}, {first} and {second} use the same data and at least one "
            "of them changes it, but nothing says which runs first.\n"
            "  fix: put them in `with popxl.in_sequence():`, or use the output of the in-place op in the other one."
        )


def _closure(before: dict[int, set[int]]) -> dict[int, int]:
    """Op id -> bit set (by rank of id) of all operators that run before it."""
    place = {i: k for k, i in enumerate(sorted(before))}
    reach: dict[int, int] = {}
    for start in before:
        stack = [start]
        while stack:
            i = stack[-1]
            if i in reach:
                stack.pop()
                continue
            missing = [b for b in before[i] if b not in reach]
            if missing:
                stack.extend(missing)
                continue
            bits = 0
            for b in before[i]:
                bits |= reach[b] | 1 << place[b]
            reach[i] = bits
            stack.pop()
    return reach
