"""Outlining: each repeated sequence of ops becomes one subgraph, which every occurrence calls.

Occurrences agree in op types, tensor types and attributes, and in the data flow among their ops. The sequence with the
most value goes first; new subgraphs take part in the next round, so that calls nest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import onnx_ir as ir

from patterns import static_shape

from ..model.op_names import identifier
from ..ops import Trait
from . import nodes
from .placement import IPU, STAGE, number
from .recompute import RECOMPUTE
from .repeats import best_repeats
from .sharing import all_graphs

COPY = "copy"  # on an op that was moved: its copy in the subgraph
REPLACED = "replaced"  # on a Call: the ops that it replaced
VALUE_OF_EXPENSIVE, VALUE_OF_CHEAP = 1000.0, 0.1


@dataclass(frozen=True)
class Replaced:
    """An op that was outlined, as debug records name it, and its copy in the subgraph."""

    opid: str
    inputs: list[str]
    outputs: list[str]
    name: str
    node: ir.Node

    @property
    def copy(self) -> ir.Node:
        """Its copy in the innermost subgraph."""
        node: ir.Node = self.node
        while COPY in node.meta:
            node = nodes.note(node, COPY)
        return node


def outline(graph: ir.Graph, threshold: float, numbers: Iterator[int], protected: frozenset[str] = frozenset()) -> None:
    """Outline repeated sequences of the main graph, which is in execution order, and its subgraphs.

    A sequence must have a value above `threshold`; `numbers` are for the names of the subgraphs, and tensors in
    `protected` stay in the main graph.
    """
    while _round(graph, threshold, numbers, protected):
        pass


def _round(graph: ir.Graph, threshold: float, numbers: Iterator[int], protected: frozenset[str]) -> bool:
    """Outline the most valuable sequences that do not overlap; returns whether there was one."""
    line = _line(graph)
    sums = [0.0, *accumulate(map(_value, line))]

    def worth(start: int, stop: int) -> float:
        value = sums[stop] - sums[start]
        return value if value > threshold else 0.0

    def alike(length: int, starts: list[int]) -> list[int]:
        groups: dict[Hashable, list[int]] = {}
        for s in starts:
            groups.setdefault(_wiring(_part(line, s, length)), []).append(s)
        none: list[int] = []
        return max(groups.values(), key=len, default=none)

    letters = _letters(line, cheap_updates=threshold < VALUE_OF_CHEAP)
    found = sorted(best_repeats(letters, worth, alike), key=lambda repeat: repeat[1])  # numbered in execution order
    for length, starts in found:
        parts = [_part(line, s, length) for s in starts]
        _outline(parts, f"call_subgraph({next(numbers)})", protected, graph.opset_imports.get("", 11))
    return bool(found)


def _line(graph: ir.Graph) -> list[ir.Node | None]:
    """All ops in order, with None wherever the graph, the IPU, the stage or the context changes."""
    line: list[ir.Node | None] = []
    for each in all_graphs(graph):
        before: Hashable = None
        for node in each:
            place = (number(node, IPU), number(node, STAGE), nodes.note(node, nodes.CONTEXT))
            line += [node] if place == before else [None, node]
            before = place
    return line


def _part(line: Sequence[ir.Node | None], start: int, length: int) -> list[ir.Node]:
    return [node for node in line[start : start + length] if node is not None]


def _letters(line: Sequence[ir.Node | None], *, cheap_updates: bool) -> list[int]:
    """A number per op: the same for equal ops, a unique one for an op that must not be moved."""
    known: dict[Hashable, int] = {}
    keys = (_key(n) if n is not None and _may_move(n, cheap_updates) else i for i, n in enumerate(line))
    return [known.setdefault(key, len(known)) for key in keys]


def _may_move(node: ir.Node, cheap_updates: bool) -> bool:
    row = nodes.row(node)
    if row.has(Trait.NOT_OUTLINED) or (nodes.subgraphs(node) and node.op_type != "Call"):
        return False
    return cheap_updates or row.has(Trait.EXPENSIVE) or nodes.note(node, nodes.PASS) != nodes.UPDATE


def _value(node: ir.Node | None) -> float:
    """Value of outlining an op; 0 for calls, whose subgraphs are shared already."""
    if node is None or node.op_type == "Call":
        return 0.0
    return VALUE_OF_EXPENSIVE if nodes.row(node).has(Trait.EXPENSIVE) else VALUE_OF_CHEAP


def _key(node: ir.Node) -> Hashable:
    """Equal ops agree in type, types of tensors, attributes (outlining and IPU included), context and recomputation."""
    types = tuple((v.dtype, static_shape(v)) if v is not None else None for v in (*node.inputs, *node.outputs))
    attributes = tuple(sorted((k, _plain(a)) for k, a in node.attributes.items() if k != STAGE))
    again = nodes.note(node, nodes.RECOMPUTE_TYPE) == RECOMPUTE
    return node.op_type, len(node.inputs), types, attributes, nodes.note(node, nodes.CONTEXT), again


def _plain(attribute: ir.Attr) -> str:
    value = attribute.value
    if attribute.type == ir.AttributeType.GRAPH:
        return str(id(value))
    return repr(tuple(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else value)


def _wiring(part: Sequence[ir.Node]) -> Hashable:
    """Where each operand comes from: an output of the part, or the n-th tensor from outside."""
    inside = {output: (i, j) for i, node in enumerate(part) for j, output in enumerate(node.outputs)}
    outside: dict[ir.Value, int] = {}
    operands = (v for node in part for v in node.inputs)
    return tuple(v if v is None else inside.get(v) or outside.setdefault(v, len(outside)) for v in operands)


def _outline(occurrences: list[list[ir.Node]], name: str, protected: frozenset[str], opset: int) -> None:
    results = _results(occurrences, protected)
    body = _body(occurrences[0], results, name)
    for part in occurrences:
        call = nodes.make("Call", _operands(part), [], like=part[0], attributes={"callee": body})
        call.resize_outputs(len(results))
        call.meta[REPLACED] = [
            Replaced(identifier(n, opset), _names(n.inputs), _names(n.outputs), n.name or "", n) for n in part
        ]
        graph = part[0].graph
        assert isinstance(graph, ir.Graph)
        graph.insert_before(part[0], call)
        for (i, j), new in zip(results, call.outputs, strict=True):
            old = part[i].outputs[j]
            old_name, old.name = old.name, None
            new.name, new.type, new.shape = old_name, old.type, old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        for node, copy in zip(part, body, strict=True):
            node.meta[COPY] = copy
        graph.remove(part, safe=True)


def _results(occurrences: list[list[ir.Node]], protected: frozenset[str]) -> list[tuple[int, int]]:
    """Outputs that something outside reads in at least one occurrence, or that nothing reads at all."""
    wanted: dict[tuple[int, int], None] = {}
    for part in occurrences:
        members = set(part)
        for i, node in enumerate(part):
            for j, output in enumerate(node.outputs):
                readers = output.consumers()
                asked_for = output.name in protected or output.is_graph_output()
                if asked_for or not readers or not members.issuperset(readers):
                    wanted[i, j] = None
    return sorted(wanted)


def _operands(part: Sequence[ir.Node]) -> list[ir.Value]:
    """Tensors from outside, each once, in the order in which they are read."""
    made = {output for node in part for output in node.outputs}
    return list(dict.fromkeys(v for node in part for v in node.inputs if v is not None and v not in made))


def _names(values: Sequence[ir.Value | None]) -> list[str]:
    return [v.name or "" for v in values if v is not None]


def _body(part: Sequence[ir.Node], results: list[tuple[int, int]], name: str) -> ir.Graph:
    outside = _operands(part)
    copies: dict[ir.Value, ir.Value] = {v: nodes.tensor(f"in_{i}", v) for i, v in enumerate(outside)}
    inputs = list(copies.values())
    shown = {place: f"out_{i}" for i, place in enumerate(results)}
    members: list[ir.Node] = []
    for i, node in enumerate(part):
        made = [nodes.tensor(shown.get((i, j), o.name or ""), o) for j, o in enumerate(node.outputs)]
        operands = [None if v is None else copies[v] for v in node.inputs]
        inner = nodes.make(
            node.op_type, operands, made, domain=node.domain, like=node, attributes=dict(node.attributes)
        )
        copies.update(zip(node.outputs, made, strict=True))
        members.append(inner)
    return ir.Graph(inputs, [members[i].outputs[j] for i, j in results], nodes=members, name=name)
