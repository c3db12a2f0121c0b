"""Activations that wait in streaming memory for a later execution phase."""

from __future__ import annotations

import math

import onnx_ir as ir

from patterns import static_shape

from ..ops import Trait
from . import nodes
from .facts import IrFacts
from .locations import remote_load, remote_offset
from .placement import IPU, PHASE, number

STAYS = 2  # phases alternate between two IPUs: what the next turn of an IPU reads stays there


def stream_activations(graph: ir.Graph, facts: IrFacts) -> None:
    """Store off-chip activations behind the op that makes them, and load them again for readers of later phases.

    The gradient ops of the forward ops of phase p run in phase 2 * last - p.
    """
    if facts.options.virtual_graphs != "ExecutionPhases":
        return
    forward = [n for n in graph if n.meta.get(nodes.PASS) == nodes.FORWARD and number(n, PHASE) is not None]
    last = max((number(n, PHASE) or 0 for n in forward), default=0)
    for node in forward:
        for value in node.outputs:
            late = [u for u in value.uses() if (_phase(u.node, last) or 0) > (number(node, PHASE) or 0) + STAYS]
            if late and _is_off_chip(value, facts) and not _shows_a_source(node):
                _store_and_load(graph, value, [(u.node, u.idx) for u in late])


def _phase(node: ir.Node, last: int) -> int | None:
    phase = number(node, PHASE)
    return phase if phase is None or node.meta.get(nodes.PASS) == nodes.FORWARD else 2 * last - phase


def _is_off_chip(value: ir.Value, facts: IrFacts) -> bool:
    location = facts.options.located.get(value.name or "", facts.options.activations)
    return location.off_chip and math.prod(static_shape(value) or ()) >= location.least_off_chip


def _shows_a_source(node: ir.Node) -> bool:
    """Whether the op only views weights or constants."""
    sources = all(v is None or v.producer() is None for v in node.inputs)
    return sources and nodes.row(node).has(Trait.VIEW_CHANGE)


def _store_and_load(graph: ir.Graph, value: ir.Value, late: list[tuple[ir.Node, int]]) -> None:
    """One store, and one load on each IPU with late readers."""
    producer, offset = value.producer(), remote_offset(value)
    assert producer is not None
    attributes = {"bufferid": value.name or ""}
    graph.insert_after(producer, nodes.make("RemoteStore", [value, offset], [], like=producer, attributes=attributes))
    loaded: dict[int | None, ir.Value] = {}
    readers = {node for node, _ in late}
    for node in [n for n in graph if n in readers]:
        place = number(node, IPU)
        if place not in loaded:
            suffix = "" if place is None else f"_c{place}"
            loaded[place] = remote_load(graph, value, offset, node, suffix)
        for reader, index in late:
            if reader is node:
                node.replace_input_with(index, loaded[place])
