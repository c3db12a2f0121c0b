"""Cuts a program's graph into units, at changes of its nodes' virtual graph or pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from ...lowering.resolve import needs
from ...model.attribute_names import PIPELINE_STAGE, VIRTUAL_GRAPH
from ..program import Program


@dataclass
class Unit:
    """Nodes of one place (virtual graph or pipeline stage) that run together."""

    level: int  # number of changes of place on the longest path to here; units of one level do not depend on each other
    device: int  # number of the virtual graph
    # tensors that other units compute (the keys, in order)
    reads: dict[str, None] = field(default_factory=dict[str, None])
    # tensors that other units read, and the loss if it is computed here
    makes: dict[str, None] = field(default_factory=dict[str, None])
    bound: dict[str, None] = field(default_factory=dict[str, None])  # streams and variables that it reads
    inside: set[str] = field(default_factory=set[str])  # all tensors that it computes


def cut(program: Program, *, pipelined: bool) -> list[Unit]:
    """The units of a program with PopART's placement attributes, in an order in which they can run.

    Nodes without annotation join the place of their inputs. Values that depend on constants alone have no place: every
    reader computes them. If `pipelined`, pipeline stages are separate places, even on one virtual graph.
    """
    homes: dict[ir.Value, Unit] = {}
    places: dict[int, int] = {}  # by id of the unit
    units: dict[tuple[int, int], Unit] = {}
    devices: dict[int, int] = {}
    for node in program.graph:
        sources = [v for v in needs(node) if v.name in program.bound or v in homes]
        if not sources:
            continue
        before = [homes[v] for v in sources if v in homes]
        place = _place(node, pipelined)
        if place is None:
            latest = max(before, key=lambda u: u.level, default=None)
            place = 0 if latest is None else places[id(latest)]
        graph = node.attributes.get(VIRTUAL_GRAPH)
        device = devices.setdefault(place, place if graph is None else graph.as_int())
        level = max((u.level + (places[id(u)] != place) for u in before), default=0)
        unit = units.setdefault((level, place), Unit(level, device))
        places[id(unit)] = place
        for value in sources:
            name = value.name or ""
            if value not in homes:
                unit.bound[name] = None
            elif homes[value] is not unit:
                unit.reads[name] = None
                homes[value].makes[name] = None
        for value in node.outputs:
            homes[value] = unit
            unit.inside.add(value.name or "")
    if program.training is not None:
        for unit in units.values():
            if program.training.loss in unit.inside:
                unit.makes[program.training.loss] = None
    return [units[key] for key in sorted(units)]


def _place(node: ir.Node, pipelined: bool) -> int | None:
    names = (PIPELINE_STAGE, VIRTUAL_GRAPH) if pipelined else (VIRTUAL_GRAPH,)
    found = next((node.attributes[n] for n in names if n in node.attributes), None)
    return None if found is None else found.as_int()
