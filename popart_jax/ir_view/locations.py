"""Ops for tensors that are kept off chip or sharded over the replicas."""

from __future__ import annotations

import math

import onnx_ir as ir

from patterns import static_shape

from ..model.attribute_names import REPLICA_GROUPING
from . import nodes
from .facts import IrFacts, Location

OPTIMIZER_STATE = ("Accl1___", "Accl2___", "Accl3___", "Step___")
ACCUMULATORS = ("Accum___", "Accl___")  # momentum and sum of gradients in one, of SGD with a combined accumulator, too
REDUCE, SCATTER, GATHER = "ReplicatedAllReduce", "ReplicatedReduceScatter", "ReplicatedAllGather"


def place_tensors(graph: ir.Graph, facts: IrFacts) -> None:
    """Add gathers and scatters of sharded variables, and loads and stores of those in remote buffers."""
    for value in nodes.sources_read(graph, "variable"):
        location = _location(value, facts)
        elements = math.prod(static_shape(value) or ())
        grouping = facts.options.grouping((value.name or "").split("___")[-1])
        if location.sharded and grouping[2] > 1 and elements >= location.least_sharded:
            _shard(graph, value, grouping)
        if location.off_chip and elements >= location.least_off_chip:
            _load_and_store(graph, value)


def _location(value: ir.Value, facts: IrFacts) -> Location:
    name, options = value.name or "", facts.options
    if name in options.located:
        return options.located[name]
    if name.startswith(ACCUMULATORS):
        return options.accumulators
    return options.optimizer_state if name.startswith(OPTIMIZER_STATE) else options.weights


def _shard(graph: ir.Graph, value: ir.Value, grouping: tuple[int, int, int]) -> None:
    """Forward and backward ops read the gathered tensor, the update its shard; so the gradient is scattered."""
    name = value.name or ""
    readers = [u for u in value.uses() if u.node.meta.get(nodes.PASS) != nodes.UPDATE]
    if readers:
        full = nodes.tensor(f"{name}__gathered", value)
        attributes = {REPLICA_GROUPING: grouping}
        gather = nodes.make(GATHER, [value], [full], like=readers[0].node, attributes=attributes)
        graph.insert_before(_first(graph, {u.node for u in readers}), gather)
        for reader in readers:
            reader.node.replace_input_with(reader.idx, full)
    weight = name.split("___")[-1]
    for node in graph:
        if node.op_type == REDUCE and node.outputs[0].name in _reduced_names(weight):
            node.op_type = SCATTER
            shape = static_shape(node.outputs[0])
            if shape is not None:
                node.outputs[0].shape = ir.Shape([-(-math.prod(shape) // grouping[2])])


def _reduced_names(weight: str) -> tuple[str, str]:
    return f"FinalReducedGradient___{weight}", f"AcclIntoUpdate___{weight}"


def _first(graph: ir.Graph, members: set[ir.Node]) -> ir.Node:
    return next(n for n in graph if n in members)


def _load_and_store(graph: ir.Graph, value: ir.Value) -> None:
    """The tensor is loaded into a buffer before its first reader, and stored behind its last update."""
    uses = list(value.uses())
    first = _first(graph, {u.node for u in uses})
    offset = remote_offset(value)
    loaded = remote_load(graph, value, offset, first)
    for use in uses:
        use.node.replace_input_with(use.idx, loaded)
    updates = [n for n in graph if n.meta.get(nodes.PASS) == nodes.UPDATE and n.inputs and n.inputs[0] is loaded]
    if updates:
        attributes = {"bufferid": value.name or ""}
        store = nodes.make("RemoteStore", [updates[-1].outputs[0], offset], [], like=updates[-1], attributes=attributes)
        graph.append(store)


def remote_offset(value: ir.Value) -> ir.Value:
    """The tensor that says where in its remote buffer a tensor lies."""
    return nodes.source(f"RemoteArg___{value.name}", "const", ir.DataType.INT32, ())


def remote_load(graph: ir.Graph, value: ir.Value, offset: ir.Value, before: ir.Node, suffix: str = "") -> ir.Value:
    """What a load of the tensor's remote buffer gives, in front of a node."""
    buffer = nodes.tensor(f"{value.name}__buffer{suffix}", value)
    loaded = nodes.tensor(f"{value.name}__loaded{suffix}", value)
    init = nodes.make("Init", [], [buffer], like=before)
    attributes = {"bufferid": value.name or ""}
    load = nodes.make("RemoteLoad", [buffer, offset], [loaded], like=before, attributes=attributes)
    graph.insert_before(before, [init, load])
    return loaded
