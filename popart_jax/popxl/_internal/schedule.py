"""Order of a graph's operators, and the text form of a graph."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import popart_exception
from ...lowering.effects import effect_of
from .alias import alias_sets
from .operands import op_of

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from .op import Op


def dependencies(graph: Graph, in_place: bool = True) -> dict[int, set[int]]:
    """Op id -> ids of the operators that must run before it.

    These are producers, constraints, and (with `in_place`) the order of operators around a write, as they were created.
    """
    before: dict[int, set[int]] = {op.id: set() for op in graph._ops.values()}
    for op in graph._ops.values():
        for value in op._node.inputs:
            producer = None if value is None else value.producer()
            if producer is not None:
                before[op.id].add(op_of(producer).id)
        before[op.id].update(p.id for p in graph._topo_cons.after.get(op, []) if p.id in before)
    if in_place:
        for first, second in in_place_pairs(graph):
            before[second].add(first)
    return before


def in_place_pairs(graph: Graph) -> list[tuple[int, int]]:
    """(earlier, later) in node order: a write waits for the uses since the last write, any other use for that write."""
    pairs: list[tuple[int, int]] = []
    for found in written_storages(graph):
        last, since = list[int](), list[int]()
        for op, uses in groupby(found, key=itemgetter(0)):
            writes = any(writing for *_, writing in uses)
            pairs += [(i, op.id) for i in ((since or last) if writes else last)]
            last, since = ([op.id], []) if writes else (last, [*since, op.id])
    return pairs


def written_storages(graph: Graph) -> list[list[tuple[Op, Tensor, bool]]]:
    """For each storage that is written: its users in node order, through which tensor, and whether they write."""
    shared = alias_sets(graph)
    uses: dict[str | int, list[tuple[Op, Tensor, bool]]] = {}
    for node in graph._graph:
        op, effect = op_of(node), effect_of(node)
        written = {i for i, _ in (() if effect is None else effect.writes)}
        for i, t in op._inputs().items():
            group = shared.get(t.id)
            uses.setdefault(t.id if group is None else id(group), []).append((op, t, i in written))
    return [found for found in uses.values() if any(writes for *_, writes in found)]


def schedule(graph: Graph) -> list[Op]:
    """Operators in schedule order: among those that are ready the one with the least memory growth, then the oldest.

    Constraints that no order keeps raise popart_exception.
    """
    before = dependencies(graph)
    after: dict[int, list[int]] = {i: [] for i in before}
    for i, befores in before.items():
        for b in befores:
            after[b].append(i)
    waiting = {i: len(b) for i, b in before.items()}
    readers = {t.id: {op_of(node).id for node, _ in t._value.uses()} for t in graph._tensors.values()}
    kept = {t.id for t in graph.outputs}
    ready = {i for i, n in waiting.items() if n == 0}
    order: list[Op] = []
    heap: list[tuple[int, int]] = [(_growth(graph._ops[i], readers, kept), i) for i in ready]
    heapq.heapify(heap)
    while heap:
        _, i = heapq.heappop(heap)
        if i not in ready:  # queued again with less growth, and taken then
            continue
        op = graph._ops[i]
        order.append(op)
        ready.discard(i)
        left = [readers[t.id] for t in op._inputs().values()]
        for others in left:
            others.discard(i)
        for n in after[i]:
            waiting[n] -= 1
        new = {n for n in after[i] if not waiting[n]}
        last = {n for others in left if len(others) == 1 for n in others}  # each now frees an operand
        ready |= new
        for n in new | (last & ready):
            heapq.heappush(heap, (_growth(graph._ops[n], readers, kept), n))
    stuck = [graph._ops[i].debugName() for i, count in waiting.items() if count]
    if stuck:
        raise popart_exception(f"No order of graph '{graph.id}' keeps its constraints; these can't start: {stuck}")
    return order


def _growth(op: Op, readers: Mapping[str, set[int]], kept: set[str]) -> int:
    """Bytes of the results, less those of operands that no other operator is left to read."""
    operands = {t.id: t for t in op._inputs().values() if t.id not in kept and t._value.producer() is not None}
    freed = sum(_bytes(t) for t in operands.values() if readers[t.id] == {op.id})
    return sum(_bytes(t) for t in op._outputs().values()) - freed


def _bytes(t: Tensor) -> int:
    return int(np.prod(t.shape, dtype=np.int64)) * t.dtype.as_numpy().itemsize


def print_schedule(graph: Graph, names: Mapping[Any, str] | None = None) -> str:
    """Text of a graph: inputs (some under other `names`), outputs, operators with numbered tensors."""
    numbers: dict[str, int] = {}

    def number(t: Tensor) -> str:
        return f"%{numbers.setdefault(t.id, len(numbers) + 1)}"

    def typed(t: Tensor) -> str:
        return f"{number(t)} [{t.shape} {t.dtype.name}]"

    named = names or {}
    inputs = ", ".join(f"{named[t]}={number(t)}" if t in named else number(t) for t in graph.inputs)
    lines = []
    for op in schedule(graph):
        called = f"({op._called()[0].id})" if op.opType() in ("Call", "Loop") else ""
        operands = ", ".join(typed(t) for t in op._inputs().values())
        results = ", ".join(typed(t) for t in op._outputs().values())
        lines.append(f"    {op.opType()}.{op.id}{called} ({operands}) -> ({results})")
    outputs = ", ".join(number(t) for t in graph.outputs)
    body = "\n".join(lines or ["    "])
    return f"Graph : {graph.name}\n  ({inputs}) -> ({outputs}) {{\n{body}\n  }}"
