"""IPUs of the ops and the copies between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import onnx_ir as ir

from . import nodes
from .auto_placement import assign
from .facts import IrFacts

IPU, STAGE, PHASE = "__ipu_number", "__pipeline_stage", "__execution_phase"


def number(node: ir.Node, name: str) -> int | None:
    """An integer placement attribute, None when unset."""
    value = nodes.attribute(node, name)
    return (
        None if value is None else int(cast("Sequence[Any]", value)[0] if isinstance(value, (list, tuple)) else value)
    )


def prepare(graph: ir.Graph, facts: IrFacts) -> None:
    """Keep, drop or derive the annotations as the virtual graph mode says."""
    mode, pipelining = facts.options.virtual_graphs, facts.options.pipelining
    if mode == "Auto":
        options = facts.options
        places = assign(graph, options.ipus, options.split_ratios, facts.training, options.accumulate)
        for node, place in places.items():
            node.attributes[IPU] = ir.AttrInt64(IPU, place)
    for node in graph.all_nodes():
        if mode == "Off":
            node.attributes.pop(IPU, None)
        elif mode == "ExecutionPhases" and number(node, IPU) is None and number(node, PHASE) is not None:
            node.attributes[IPU] = ir.AttrInt64(IPU, (number(node, PHASE) or 0) % 2)
        if not pipelining:
            node.attributes.pop(STAGE, None)
        if mode != "ExecutionPhases":
            node.attributes.pop(PHASE, None)


def add_copies(graph: ir.Graph, facts: IrFacts) -> None:
    """Add one IpuCopy per tensor and destination; in a pipeline, copies to distant IPUs go through those in between."""
    if facts.options.virtual_graphs == "Off":
        return
    _infer_missing(graph)
    stage_ipus = _stage_ipus(graph) if facts.options.pipelining else {}
    homes = _homes(graph)
    copies: dict[tuple[ir.Value, int], ir.Value] = {}
    for node in list(graph):
        there = number(node, IPU)
        for position, value in enumerate(node.inputs):
            if value is None or there is None or value not in homes or homes[value][0] == there:
                continue
            copy = _copied(graph, value, node, homes, copies, stage_ipus)
            node.replace_input_with(position, copy)


def _infer_missing(graph: ir.Graph) -> None:
    """Place an op without annotation (made from several, or on scalars) on the IPU of its first placed input."""
    for node in graph:
        if number(node, IPU) is None:
            producers = [v.producer() for v in node.inputs if v is not None]
            placed = [n for n in producers if n is not None and number(n, IPU) is not None]
            readers = [n for o in node.outputs for n in o.consumers() if number(n, IPU) is not None]
            for name in (IPU, STAGE):
                found = next((number(n, name) for n in (*placed, *readers)), None)
                if found is not None and name not in node.attributes:
                    node.attributes[name] = ir.AttrInt64(name, found)


def _homes(graph: ir.Graph) -> dict[ir.Value, tuple[int, int | None]]:
    """IPU and stage of each tensor: for sources those of the first reader; constants are everywhere."""
    homes: dict[ir.Value, tuple[int, int | None]] = {}
    for node in graph:
        place = number(node, IPU)
        if place is None:
            continue
        for value in node.inputs:
            if value is not None and value.producer() is None and nodes.kind(value) != "const":
                homes.setdefault(value, (place, number(node, STAGE)))
        for output in node.outputs:
            homes[output] = (place, number(node, STAGE))
    return homes


def _stage_ipus(graph: ir.Graph) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in graph:
        stage, place = number(node, STAGE), number(node, IPU)
        if stage is not None and place is not None:
            found.setdefault(stage, place)
    return found


def _copied(
    graph: ir.Graph,
    value: ir.Value,
    reader: ir.Node,
    homes: dict[ir.Value, tuple[int, int | None]],
    copies: dict[tuple[ir.Value, int], ir.Value],
    stage_ipus: dict[int, int],
) -> ir.Value:
    place, stage = homes[value]
    current, current_ipu = value, place
    for ipu, at in _way(place, stage, reader, stage_ipus):
        if (value, ipu) not in copies:
            copy = nodes.tensor(f"{value.name}_c{ipu}", value)
            attributes = {IPU: current_ipu, "__sourceIpus": (current_ipu,), "__destIpu": ipu}
            made = nodes.make("IpuCopy", [current], [copy], attributes=attributes, meta=_meta(value, reader))
            if at is not None:
                made.attributes[STAGE] = ir.AttrInt64(STAGE, at)
            graph.insert_before(reader, made)
            copies[value, ipu] = copy
        current, current_ipu = copies[value, ipu], ipu
    return current


def _way(place: int, stage: int | None, reader: ir.Node, stage_ipus: dict[int, int]) -> list[tuple[int, int | None]]:
    """(destination, stage of the copy) of each hop from `place` to the reader."""
    there, at = number(reader, IPU) or 0, number(reader, STAGE)
    if stage is None or at is None or abs(at - stage) < 2:
        return [(there, stage)]
    step = 1 if at > stage else -1
    hops = [(stage_ipus[s], s - step) for s in range(stage + step, at + step, step) if s in stage_ipus]
    before, way = place, []
    for ipu, copy_stage in hops:
        if ipu != before:
            way.append((ipu, copy_stage))
            before = ipu
        if ipu == there:
            break
    return way if way and way[-1][0] == there else [(there, stage)]


def _meta(value: ir.Value, reader: ir.Node) -> dict[str, object]:
    producer = value.producer()
    like = producer or reader
    return {
        nodes.PASS: nodes.note(like, nodes.PASS, nodes.FORWARD),
        nodes.CONTEXT: nodes.note(like, nodes.CONTEXT, nodes.NORMAL),
    }
