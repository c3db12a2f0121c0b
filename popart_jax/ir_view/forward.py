"""The forward ops as PopART has them after reading a model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import patterns

from ..lowering.constants import folded
from ..model.attribute_names import BUILDER_GRAPH, COMM_GROUP, REPLICA_GROUPING
from ..model.checks.structure import bodies
from ..ops import Trait
from ..ops.replicas import groups_from
from . import body_types, nodes
from .facts import IrFacts

LARGEST_FOLDED = 65536  # elements; the data of larger constants are not needed here


def forward_graph(facts: IrFacts) -> ir.Graph:
    """A copy of the graph: types filled in, tensor kinds marked, constants folded, parameters as attributes."""
    graph = facts.graph.clone()
    graph.outputs.clear()  # only anchors keep a tensor alive
    _name_branches(graph)
    _fill_types(graph, facts)
    _mark_kinds(graph, facts)
    _drop_absent_outputs(graph)
    for node in list(graph):
        _absorb_parameters(node, facts)
        if _is_constant(node, facts):
            _fold(graph, node)
    _settle_groups(graph, facts.options.replicas)
    for node in graph.all_nodes():
        node.meta.setdefault(nodes.PASS, nodes.FORWARD)
    return graph


def _settle_groups(graph: ir.Graph, replicas: int) -> None:
    """Collectives carry their groups as replicas, stride and size."""
    for node in graph.all_nodes():
        if nodes.row(node).has(Trait.BETWEEN_REPLICAS) and REPLICA_GROUPING not in node.attributes:
            groups = groups_from(tuple(nodes.attribute(node, COMM_GROUP, ())), replicas)
            node.attributes[REPLICA_GROUPING] = ir.AttrInt64s(REPLICA_GROUPING, (replicas, groups.stride, groups.size))


_BRANCHES = {"then_branch": "then_block", "else_branch": "else_block"}


def _name_branches(graph: ir.Graph) -> None:
    """Branches of an If that the program has not named."""
    for node in graph.all_nodes():
        for name, body in bodies(node) if node.op_type == "If" else ():
            if BUILDER_GRAPH in (body.name or BUILDER_GRAPH):
                body.name = _BRANCHES[name]


def _fill_types(graph: ir.Graph, facts: IrFacts) -> None:
    values = [*graph.inputs, *graph.initializers.values(), *(o for n in graph.all_nodes() for o in n.outputs)]
    for value in values:
        if value.const_value is not None and value.shape is None:
            value.dtype, value.shape = value.const_value.dtype, ir.Shape(value.const_value.shape.numpy())
        if value.name is not None and value.name in facts.types:
            dtype, shape = facts.types[value.name]
            value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
    body_types.fill(graph, graph.opset_imports.get("", 11))


def _mark_kinds(graph: ir.Graph, facts: IrFacts) -> None:
    for value in graph.inputs:
        value.meta[nodes.KIND] = "stream"
    for name, value in graph.initializers.items():
        value.meta[nodes.KIND] = "variable" if name in facts.variables else "const"


def _drop_absent_outputs(graph: ir.Graph) -> None:
    """ONNX writes an absent output with an empty name; at the end of the list it is removed."""
    for node in graph.all_nodes():
        trailing = 0
        for output in reversed(node.outputs):
            if output.name:
                break
            trailing += 1
        if trailing:
            node.resize_outputs(len(node.outputs) - trailing)


def _is_constant(node: ir.Node, facts: IrFacts) -> bool:
    if not nodes.row(node).has(Trait.FOLDS) or any(o.name in facts.anchors for o in node.outputs):
        return False
    if node.op_type in ("Constant", "Shape"):
        return node.op_type == "Constant" or patterns.static_shape(node.inputs[0]) is not None
    return all(v is None or nodes.kind(v) == "const" for v in node.inputs)


def _fold(graph: ir.Graph, node: ir.Node) -> None:
    """Replace the node's outputs by constants, with their data if those are small and can be computed."""
    arrays = _evaluate(graph, node)
    for i, output in enumerate(node.outputs):
        constant = nodes.source(output.name or "", "const", output.dtype, patterns.static_shape(output))
        if arrays is not None:
            constant.const_value = ir.tensor(arrays[i], name=constant.name)
            constant.dtype, constant.shape = ir.DataType.from_numpy(arrays[i].dtype), ir.Shape(arrays[i].shape)
        output.replace_all_uses_with(constant, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _evaluate(graph: ir.Graph, node: ir.Node) -> list[np.ndarray] | None:
    if node.op_type == "Shape":
        return [np.array(patterns.static_shape(node.inputs[0]), np.int64)]
    data = [v.const_value for v in node.inputs if v is not None]
    if any(d is None or d.size > LARGEST_FOLDED for d in data):
        return None
    return folded(node, {}, graph.opset_imports)


def _absorb_parameters(node: ir.Node, facts: IrFacts) -> None:
    """Constant parameter inputs become attributes; the op then reads data only."""
    parameters = nodes.row(node).parameters
    if not parameters or node.domain not in ("", "ai.onnx") or _is_constant(node, facts):
        return
    for position, name in parameters.items():
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is None or nodes.kind(value) != "const":
            continue
        if value.const_value is not None:
            array = value.const_value.numpy()
            numbers = array.reshape(-1).tolist()
            given = numbers if array.ndim or not numbers else numbers[0]
            kind = None if numbers else ir.AttributeType.FLOATS if array.dtype.kind == "f" else ir.AttributeType.INTS
            node.attributes[name] = ir.convenience.convert_attribute(name, given, kind)
        node.replace_input_with(position, None)
    while node.inputs and node.inputs[-1] is None:
        node.resize_inputs(len(node.inputs) - 1)
    if node.op_type in ("Reshape", "Slice"):  # the attribute forms are ai.graphcore's
        node.domain = patterns.GRAPHCORE
