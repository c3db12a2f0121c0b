"""Entry points for sessions: the op list as text, its types, and checks that need it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx_ir as ir

import patterns

from .._process.collector import without_collector
from ..model.op_names import describe
from . import batch_serial, needed_patterns, nodes
from .facts import BatchSerialisation, IrFacts, TensorType
from .forward import forward_graph
from .loss_scaling import TrackedGradient, tracked_tensors
from .main_loops import LOOP
from .placement import IPU, number
from .recompute import RECOMPUTE
from .serialise import to_json
from .sharing import all_graphs
from .view import build


@without_collector()
def serialize_ir(facts: IrFacts) -> str:
    """The JSON text of `_serializeIr` for a session with these facts.

    Op types, counts, placement, names and order of dependent ops follow PopART; exact schedules and the names of
    partial gradients do not, as upstream does not promise them either.
    """
    return to_json(build(facts).graph, facts.options.fully_connected_pass)


@without_collector()
def serialize_stages(facts: IrFacts, checkpoints: Collection[str]) -> dict[str, str]:
    """The JSON text at some of the `CHECKPOINTS`; inference has no ``Bwd0``."""
    texts: dict[str, str] = {}

    def look(checkpoint: str, graph: ir.Graph) -> None:
        if checkpoint in checkpoints:
            texts[checkpoint] = to_json(graph, facts.options.fully_connected_pass)

    build(facts, look)
    return texts


def serialize_forward(facts: IrFacts) -> str:
    """The JSON text of the operators as the model has them, in their order."""
    return to_json(forward_graph(facts), facts.options.fully_connected_pass)


def tensor_types(facts: IrFacts) -> dict[str, TensorType]:
    """Type of every tensor of the main graph, explicit main loops included; those of unknown type are left out."""
    graph = build(facts).graph
    graphs = [g for g in all_graphs(graph) if g is graph or (g.name or "").startswith(LOOP)]
    values = [v for g in graphs for node in g for v in (*node.inputs, *node.outputs) if v is not None]
    typed = ((v.name, v.dtype, patterns.static_shape(v)) for v in (*values, *graph.inputs))
    return {n: (dtype, shape) for n, dtype, shape in typed if n and dtype is not None and shape is not None}


def tracked_gradients(facts: IrFacts) -> tuple[TrackedGradient, ...]:
    """The gradients that automatic loss scaling tracks, one per Histogram op."""
    plain = replace(facts, options=replace(facts.options, outlining=False, main_loops=False))
    return tracked_tensors(build(plain).graph, facts.graph)


def computed_again(facts: IrFacts, graph: ir.Graph) -> frozenset[str]:
    """Results of the operators of `graph`, the one that runs, that the backward pass computes again.

    They are those that the op list marks, of a batch in parts the operators on all of it. An operator whose results the
    list does not have, since a pattern has made others of it, goes with those that read it.
    """
    plain = replace(facts.options, outlining=False, main_loops=False, batch_serialisation=BatchSerialisation())
    marks: dict[str | None, bool] = {
        o.name: bool(nodes.note(node, nodes.RECOMPUTE_TYPE) == RECOMPUTE)
        for each in all_graphs(build(replace(facts, options=plain)).graph)
        for node in each
        if node.meta.get(nodes.PASS) == nodes.FORWARD
        for o in node.outputs
    }
    again: dict[ir.Node, bool] = {}
    for node in reversed(graph):
        known = [marks[o.name] for o in node.outputs if o.name in marks]
        again[node] = any(known or (again.get(reader, False) for o in node.outputs for reader in o.consumers()))
    return frozenset(o.name for node, marked in again.items() if marked for o in node.outputs if o.name)


def check_batch(facts: IrFacts) -> None:
    """Raise popart_exception if the batch can't be serialised as the options say."""
    batch_serial.check(forward_graph(facts), facts.options.batch_serialisation.factor)


def batch_dimensions(
    graph: ir.Graph, types: Mapping[str, TensorType], streams: Collection[str], factor: int
) -> dict[str, int]:
    """Batch dimension of the tensors that exist in parts, if operators of a graph compute one part after the other."""
    copy = graph.clone(allow_outer_scope_values=True)
    for value in (*copy.inputs, *copy.initializers.values(), *(o for n in copy for o in n.outputs)):
        if value.name is not None and value.name in types:
            dtype, shape = types[value.name]
            value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
    for value in copy.inputs:
        if value.name in streams:
            value.meta[nodes.KIND] = "stream"
    axes, split = batch_serial.split_of(copy, factor)
    made = {o for node in split for o in node.outputs}
    found = {v.name: axis for v, axis in axes.items() if v.name and (v in made or v.producer() is None)}
    sizes = {n: types[n][1] for n in found if n in types}
    return {n: axis for n, axis in found.items() if n in sizes and sizes[n][axis] % factor == 0}


def misplaced(facts: IrFacts, ipus: int) -> tuple[str, ...]:
    """The error text about the first op on an IPU that does not exist; names of its operands show their IPUs."""
    opset = facts.graph.opset_imports.get("", 11)
    for node in build(facts).graph:
        place = number(node, IPU)
        if node.op_type != "IpuCopy" and place is not None and not 0 <= place < ipus:
            return (
                f"{describe(node, opset)} has been assigned to an invalid virtual graph {place}. numIPUs = {ipus}.",
            )
    return ()


def unlowered(facts: IrFacts) -> tuple[str, ...]:
    """One message per op that cannot run because the pattern that rewrites it is off; empty if there is none."""
    graph, opset = build(facts).graph, facts.graph.opset_imports.get("", 11)
    found = (needed_patterns.message(node, facts.selection, opset) for each in all_graphs(graph) for node in each)
    return tuple(text for text in found if text)
