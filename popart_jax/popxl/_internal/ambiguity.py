"""Check that every write to a storage is ordered with all other uses of the storage."""

from __future__ import annotations

from collections.abc import Callable
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
    storages = [found for found in storages if any(map(_is_writer, found))]
    if not storages:
        return
    before = dependencies(graph, in_place=False)
    reach = _closure(graph, before)
    place = {i: k for k, i in enumerate(sorted(before))}

    def is_ordered(a: Op, b: Op) -> bool:
        return bool(reach[b.id] >> place[a.id] & 1 or reach[a.id] >> place[b.id] & 1)

    for found in storages:
        pairs = ((w, u) for w in found if _is_writer(w) for u in found if u[0] is not w[0])
        for writer, used in () if _in_turn(found, reach, is_ordered) else pairs:
            if _context(writer) == _context(used) and not is_ordered(writer[0], used[0]):
                raise _refused(writer, used)


def _in_turn(uses: list[Use], reach: dict[int, int], is_ordered: Callable[[Op, Op], bool]) -> bool:
    """Whether each write is ordered with the uses between it and its neighbouring writes, and so with all others.

    Neighbours are those in an order that keeps what is ordered: by the number of operators that run before.
    """
    writers: dict[object, list[Op]] = {}  # the last write of each context
    readers: dict[object, list[Op]] = {}  # uses since then
    for use in sorted(uses, key=lambda use: reach[use[0].id].bit_count()):
        op, context = use[0], _context(use)
        before, since = writers.get(context, []), readers.setdefault(context, [])
        if not all(
            is_ordered(other, op) for other in ([*before, *since] if _is_writer(use) else before) if other is not op
        ):
            return False
        if _is_writer(use):
            writers[context], readers[context] = [op], []
        else:
            since.append(op)
    return True


def _context(use: Use) -> object:
    return use[0]._settings.executionContext


def _refused(writer: Use, used: Use) -> popart_exception:
    (one, written, _), (other, read, _) = writer, used
    refused = popart_exception(
        f"Inplacing ambiguity detected. The tensor {written.id} is modified by '{one.name()}', id: {one.id}, and the "
        f"tensor '{read.id}', which is an alias of '{written.id}', is used by the consuming op '{other.name()}', "
        f"id: {other.id}. There is no order constraint, explicit or implicit, between them."
    )
    refused.add_note("put them in `with popxl.in_sequence():`, or use the output of the in-place op in the other one")
    return refused


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
