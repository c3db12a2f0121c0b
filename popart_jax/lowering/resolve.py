"""Plans of a graph: the ordered steps that compute the wanted values, each node with its row of the operator table."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..errors import UnsupportedOpError
from ..model.checks.structure import bodies, every_node
from ..model.op_names import part_names
from ..ops.operator import Trait
from ..ops.registry import Lowering, facts, normal_domain, resolve_node
from .effects import WRITES, Effect, effect_of
from .gradients import ROW, TEMPLATE
from .schema_body import lowering_from_schema

ONNX_RULES = "__onnx_rules"
"""Attribute of nodes whose operator follows ONNX in a session too."""


@dataclass(frozen=True, slots=True)
class Step:
    """One node to run: its row, its stable number in the graph (for random keys), values that no later step reads."""

    node: ir.Node
    lowering: Lowering
    number: int
    dead: tuple[ir.Value, ...]
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in execution order, and the values that they are to compute."""

    steps: tuple[Step, ...]
    wanted: tuple[ir.Value, ...]


class Plans:
    """Cache of plans, for graphs that do not change while this object lives: a body that runs often is planned once."""

    def __init__(self) -> None:
        self._plans: dict[tuple[ir.Graph, tuple[ir.Value, ...], frozenset[ir.Value]], Plan] = {}

    def of(
        self,
        graph: ir.Graph,
        wanted: tuple[ir.Value, ...],
        opsets: Mapping[str, int],
        bound: Iterable[ir.Value] = (),
        *,
        popart: bool = False,
    ) -> Plan:
        """The plan of `make_plan`; `opsets` and rules must be the same in all calls."""
        key = (graph, wanted, _computed(bound))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = make_plan(graph, wanted, opsets, bound, popart=popart)
        return plan


def captured(graph: ir.Graph) -> set[ir.Value]:
    """Values of enclosing graphs that `graph`, or a graph inside it, uses."""
    own: set[ir.Value] = set(graph.inputs) | set(graph.initializers.values())
    used: set[ir.Value] = set(graph.outputs)
    for node in graph:
        own.update(node.outputs)
        used.update(needs(node))
    return used - own


def needs(node: ir.Node) -> Iterable[ir.Value]:
    """All values that a node reads: its inputs and those that its subgraphs capture."""
    yield from (v for v in node.inputs if v is not None)
    yield from captures(node)


def captures(node: ir.Node) -> Iterable[ir.Value]:
    """Values of enclosing graphs that the subgraphs of a node use."""
    for _, graph in bodies(node):
        yield from captured(graph)


def check_supported(graph: ir.Graph, opsets: Mapping[str, int], *, popart: bool = False) -> None:
    """Raise one `UnsupportedOpError` that lists all nodes without a translation, nested ones too.

    PopART reports version 0 for an unknown operator.
    """
    gaps: list[tuple[str, str]] = []
    for node in every_node(graph):
        if find(node, opsets) is None:
            domain = normal_domain(node.domain) or "ai.onnx"
            version = 0 if popart else node.version or opsets.get(normal_domain(node.domain), 1)
            gaps.append((f"{domain}.{node.op_type}:{version}", label(node)))
    if gaps:
        raise UnsupportedOpError(gaps, popart=popart)


def find(node: ir.Node, opsets: Mapping[str, int], *, popart: bool = False) -> Lowering | None:
    """Row of the operator table for a node under the model's opset imports, by PopART's rules if `popart` is set.

    A node with the attribute `ONNX_RULES` follows ONNX's rules in any case.
    """
    if TEMPLATE in node.meta:
        return ROW
    row = resolve_node(node, opsets, popart=popart and ONNX_RULES not in node.attributes)
    domain = normal_domain(node.domain)
    return row or lowering_from_schema(domain, node.op_type, node.version or opsets.get(domain, 1))


def label(node: ir.Node) -> str:
    """Name of a node for people and profiles: its own name, else operator type and first output.

    The Builder's outputs begin with the type themselves.
    """
    if node.name:
        return node.name
    output = next((v.name for v in node.outputs if v.name), "")
    return output if output.startswith(f"{node.op_type}:") else f"{node.op_type}:{output}"


def containing(graph: ir.Graph) -> dict[str, str]:
    """Labels of all nodes in branches and bodies, and of parts, each with that of the graph's own node that has it."""
    inside = {label(inner): label(node) for node in graph for _, body in bodies(node) for inner in every_node(body)}
    return inside | {part: label(node) for node in graph for part in part_names(node)}


def stable_number(node: ir.Node, position: int) -> int:
    """A number for a node's random key that does not change with other nodes: a hash of its first output's name."""
    name = next((v.name for v in node.outputs if v.name), "")
    return zlib.crc32(name.encode()) & 0x7FFFFFFF if name else position


def make_plan(
    graph: ir.Graph,
    wanted: tuple[ir.Value, ...],
    opsets: Mapping[str, int],
    bound: Iterable[ir.Value] = (),
    *,
    popart: bool = False,
) -> Plan:
    """Steps that `wanted` depends on, in graph order.

    `bound` values are given: nodes that only lead to them do not run. `popart` selects PopART's rules.
    """
    given = _computed(bound)
    live = set(wanted) - given
    steps: list[Step] = []
    numbered = list(enumerate(graph))
    for number, node in reversed(numbered):
        known = bool(node.outputs) and given.issuperset(node.outputs)
        if not any(v in live for v in node.outputs) and (known or not has_effect(node)):
            continue
        lowering = find(node, opsets, popart=popart)
        if lowering is None:
            check_supported(graph, opsets)
            raise AssertionError("check_supported names every gap")
        fresh = dict.fromkeys(v for v in needs(node) if v not in live)
        live.update(v for v in fresh if v not in given)
        dead = tuple(v for v in fresh if v not in given)
        steps.append(Step(node, lowering, stable_number(node, number), dead, effect_of(node)))
    return Plan(tuple(reversed(steps)), wanted)


def _computed(values: Iterable[ir.Value]) -> frozenset[ir.Value]:
    """Those of the values that a node produces."""
    return frozenset(v for v in values if v.producer() is not None)


def has_effect(node: ir.Node) -> bool:
    """Whether a node must run even if its outputs are not read: it prints, moves data, or writes to a storage."""
    return (
        facts(node.op_type).has(Trait.EFFECT)
        or WRITES in node.attributes
        or any(_graph_has_effect(graph) for _, graph in bodies(node))
    )


def _graph_has_effect(graph: ir.Graph) -> bool:
    return any(has_effect(node) for node in graph)
