"""Recomputation: chooses the forward ops to recompute in the backward pass, and (explicit form) copies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import onnx_ir as ir

from patterns.inplace import Extent

from ..ops import Trait
from . import nodes
from .checkpoints import Result, checkpoints
from .facts import IrFacts
from .nodes import byte_size
from .placement import STAGE, number

ANNOTATION = "__recompute_output_in_backward_pass"
CHECKPOINT, RECOMPUTE, RECOMPUTED = "Checkpoint", "Recompute", "Recomputed"
_KINDS = {0: "Undefined", 1: CHECKPOINT, 2: RECOMPUTE, 3: RECOMPUTED}
SUFFIX = "__re"


def annotate(graph: ir.Graph, facts: IrFacts, last: int = 0) -> None:
    """Set the recompute type of every op, and copy the recomputed ones when recomputation is explicit.

    `last` is the pipeline stage of the loss, whose ops are not recomputed.
    """
    for node in graph:
        node.meta[nodes.RECOMPUTE_TYPE] = CHECKPOINT
    if not facts.training:
        return
    forward = [n for n in graph if n.meta.get(nodes.PASS) == nodes.FORWARD]
    again = set(_automatic(forward, facts.options.recomputation, last))
    for node in forward:
        given = _given(node)
        if facts.loss not in (o.name for o in node.outputs):
            node.meta[nodes.RECOMPUTE_TYPE] = given or (RECOMPUTE if node in again else CHECKPOINT)
    if facts.options.explicit_recomputation:
        _make_explicit(graph, last)


def in_place_extent(facts: IrFacts) -> Callable[[ir.Node], Extent]:
    """Which in-place forms an op may take that runs a second time without a copy of it in the list.

    What it reads must still be there then: it has no in-place form if an operand was not computed again just before.
    In a pipeline the stages between have run meanwhile, so there it may only be a view.
    """
    again: Extent = "views" if facts.options.pipelining else "all"

    def extent(node: ir.Node) -> Extent:
        if facts.options.explicit_recomputation or nodes.note(node, nodes.RECOMPUTE_TYPE) != RECOMPUTE:
            return "all"
        sources = (v.producer() for v in node.inputs if v is not None)
        kept = any(n is None or nodes.note(n, nodes.RECOMPUTE_TYPE, CHECKPOINT) == CHECKPOINT for n in sources)
        return "nothing" if kept else again

    return extent


def _given(node: ir.Node) -> str | None:
    """The recompute type that the program has annotated."""
    value = nodes.attribute(node, ANNOTATION)
    first = cast("Sequence[Any]", value)[0] if isinstance(value, (list, tuple)) else value
    return None if first is None else _KINDS.get(int(first))


def _automatic(forward: Sequence[ir.Node], mode: str, last: int) -> Iterable[ir.Node]:
    """The ops that a mode computes again.

    RecomputeAll: every op. NormOnly: norms and the non-linearities on them. Pipeline: the forward stages but the last.
    Standard: the ops outside the checkpoints with the lowest peak of live memory.
    """
    if mode == "RecomputeAll":
        return forward
    if mode == "NormOnly":
        return _norms(forward)
    if mode == "Pipeline":
        return [n for n in forward if (number(n, STAGE) or 0) < last]
    if mode == "Standard":
        stays = checkpoints(_results(forward))
        return [n for place, n in enumerate(forward) if place not in stays]
    return []


def _norms(forward: Iterable[ir.Node]) -> list[ir.Node]:
    found: dict[ir.Node, None] = {}
    for node in forward:
        source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        row = nodes.row(node)
        if row.has(Trait.NORM) or (row.has(Trait.NON_LINEARITY) and source in found):
            found[node] = None
    return list(found)


def _results(forward: Sequence[ir.Node]) -> list[Result]:
    places = {node: place for place, node in enumerate(forward)}
    return [
        Result(
            sum(byte_size(o) for o in node.outputs),
            max((places.get(reader, place) for o in node.outputs for reader in o.consumers()), default=place),
        )
        for place, node in enumerate(forward)
    ]


def _make_explicit(graph: ir.Graph, last: int) -> None:
    """Backward readers of a recomputed tensor read a copy whose name ends in `__re`; the originals stay.

    In a pipeline each backward stage recomputes its own forward stage, from the inputs of that.
    """
    copies: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.meta.get(nodes.PASS) != nodes.BACKWARD:
            continue
        stage = number(node, STAGE)
        home = None if stage is None else 2 * last - stage
        for position, value in enumerate(node.inputs):
            if value is not None and _is_recomputed(value, home):
                node.replace_input_with(position, _copy(graph, value, copies, node, home))


def _is_recomputed(value: ir.Value, stage: int | None) -> bool:
    """Whether the tensor's producer is a recomputed op of the stage."""
    producer = value.producer()
    if producer is None or producer.meta.get(nodes.RECOMPUTE_TYPE) != RECOMPUTE:
        return False
    return stage is None or number(producer, STAGE) in (None, stage)


def _copy(
    graph: ir.Graph, value: ir.Value, copies: dict[ir.Value, ir.Value], before: ir.Node, stage: int | None
) -> ir.Value:
    """The copy of a recomputed tensor; iterative, because chains of recomputed ops can be long."""
    pending = [value]
    while pending:
        current = pending[-1]
        node = current.producer()
        assert node is not None
        missing = [v for v in node.inputs if v is not None and _is_recomputed(v, stage) and v not in copies]
        if current in copies or not missing:
            pending.pop()
            if current not in copies:
                _copy_node(graph, node, copies, before)
        else:
            pending.extend(missing)
    return copies[value]


def _copy_node(graph: ir.Graph, node: ir.Node, copies: dict[ir.Value, ir.Value], before: ir.Node) -> None:
    outputs = [nodes.tensor(f"{o.name}{SUFFIX}", o) for o in node.outputs]
    inputs = [v if v is None else copies.get(v, v) for v in node.inputs]
    meta: dict[str, Any] = {**node.meta, nodes.PASS: nodes.BACKWARD, nodes.RECOMPUTE_TYPE: RECOMPUTED}
    attributes = {name: _own(attribute) for name, attribute in node.attributes.items()}
    if STAGE in before.attributes:  # in a pipeline, the stage of the backward op
        attributes[STAGE] = before.attributes[STAGE]
    made = nodes.make(node.op_type, inputs, outputs, domain=node.domain, like=node, attributes=attributes, meta=meta)
    graph.insert_before(before, made)
    copies.update(zip(node.outputs, outputs, strict=True))


def _own(attribute: ir.Attr) -> ir.Attr:
    """The attribute for the copy of a node: a graph that two nodes hold could not be sorted."""
    if attribute.type != ir.AttributeType.GRAPH:
        return attribute
    return ir.AttrGraph(attribute.name, attribute.as_graph().clone(allow_outer_scope_values=True))
