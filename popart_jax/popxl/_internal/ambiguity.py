"""Check that every write to a storage is ordered with all other uses of the storage."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from ...errors import popart_exception
from ...lowering.effects import effect_of
from ..graph import Graph
from .schedule import dependencies, written_storages

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .op import Op

Use = tuple["Op", "Tensor", bool]
_CALLS = ("Call", "Loop", "If")


def check_graph(graph: Graph) -> None:
    """Raise popart_exception unless each pair (write, other use) of a storage is ordered by data or by `in_sequence`.

    Operators that call graphs count as readers only, and views as neither. The message names the operators.
    """
    storages = [[use for use in found if not _is_view(use[0])] for found in written_storages(graph)]
    if not any(_is_writer(use) for found in storages for use in found):
        return
    pairs = ((w, u) for found in storages for w in found if _is_writer(w) for u in found if u[0] is not w[0])
    before = dependencies(graph, in_place=False)
    reach = _closure(graph, before)
    place = {i: k for k, i in enumerate(sorted(before))}
    for (writer, written, _), (user, used, _) in pairs:
        a, b = writer.id, user.id
        same = writer._settings.executionContext == user._settings.executionContext
        if not same or reach[b] >> place[a] & 1 or reach[a] >> place[b] & 1:
            continue
        refused = popart_exception(
            f"Inplacing ambiguity detected. The tensor {written.id} is modified by '{writer.name()}', id: {a}, and the "
            f"tensor '{used.id}', which is an alias of '{written.id}', is used by the consuming op '{user.name()}', "
            f"id: {b}. There is no order constraint, explicit or implicit, between them."
        )
        refused.add_note(
            "put them in `with popxl.in_sequence():`, or use the output of the in-place op in the other one"
        )
        raise refused


def _is_writer(use: Use) -> bool:
    op, _, writes = use
    return writes and op.opType() not in _CALLS


def _is_view(op: Op) -> bool:
    effect = effect_of(op._node)
    return effect is not None and bool(effect.views) and not effect.writes


def _closure(graph: Graph, before: dict[int, set[int]]) -> dict[int, int]:
    """Op id -> bit set (by rank of id) of all operators that run before it; popart_exception if no order exists."""
    place = {i: k for k, i in enumerate(sorted(before))}
    reach: dict[int, int] = {}
    try:
        for i in TopologicalSorter(before).static_order():
            reach[i] = 0
            for b in before[i]:
                reach[i] |= reach[b] | 1 << place[b]
    except CycleError as err:
        names = " waits for ".join(graph._ops[i].debugName() for i in reversed(err.args[1]))
        raise popart_exception(f"No order of graph '{graph.id}' keeps its constraints: {names}") from None
    return reach
