"""A value with several readers is computed once, where that is less work than computing it for each of them.

Source: XLA:CPU (jaxlib 0.10) merges elementwise operators, and the sums of shifts that stand for a convolution by
channel, with each of their readers, if it can merge all of these. It would compute a residual stream from the first
block on in the kernels of each later one. `Kept` is a call that XLA does not look into, of nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import onnx_ir as ir

from ...model.checks.structure import constant_of
from ...ops.operator import Trait
from ...ops.registry import facts
from ..kernels import DOMAIN
from .channels_last import drop_unread_transposes

_SEVERAL = 2
_DOMAINS = ("", "ai.onnx", DOMAIN)
_POOLS = ("MaxPool", "AveragePool")
_VIEWS = ("Expand", "Identity", "Transpose")
Kernels = frozenset[ir.Node | ir.Value]
"""Kernels by what they end with: a node, or a value that a product reads or that is kept."""
Sources = frozenset[ir.Node | ir.Value]
"""Values that a kernel reads; a node stands for the shifted reads of a convolution by channel."""


def keep_values(graph: ir.Graph, protected: Collection[str] = ()) -> bool:
    """Rewrite `graph` in place; returns whether anything changed."""
    drop_unread_transposes(graph, protected)
    kernels, sources = _kernels(graph), dict[ir.Value, Sources]()
    found: list[ir.Value] = []
    for node in graph:
        if _is_reduction(node):
            sources[node.outputs[0]] = frozenset()  # small
        if _merges(node) and node.outputs[0].dtype != ir.DataType.INT64:  # those are sizes
            (value,) = node.outputs
            sources[value] = _sources(node, sources)
            if _is_shared(value, kernels) and (len(sources[value]) >= _SEVERAL or value in kernels[value]):
                found.append(value)
                sources[value] = frozenset([value])
    found += [node.outputs[0] for node in graph if _is_pool(node) and _is_turned(node.outputs[0])]
    for value in found:
        _keep(graph, value)
    return bool(found)


def _is_pool(node: ir.Node) -> bool:
    return node.domain == DOMAIN and node.op_type in _POOLS


def _is_turned(value: ir.Value) -> bool:
    """Whether it is read in another order alone, in which XLA would compute it, without vectors."""
    return bool(value.consumers()) and all(reader.op_type == "Transpose" for reader in value.consumers())


def _merges(node: ir.Node) -> bool:
    """Whether XLA merges the operator with its readers."""
    if node.domain not in _DOMAINS or len(node.outputs) != 1:
        return False
    row = facts(node.op_type)
    loop = row.has(Trait.ELEMENTWISE) or node.op_type == "ChannelAffine" or _is_view(node) or _is_by_channel(node)
    return loop and not row.has(Trait.RANDOM)


def _is_view(node: ir.Node) -> bool:
    """Whether its elements are those of the first operand."""
    return node.op_type in _VIEWS or facts(node.op_type).has(Trait.VIEW_CHANGE)


def _is_by_channel(node: ir.Node) -> bool:
    weights, group = node.inputs[1] if node.op_type == "Conv" else None, node.attributes.get_int("group", 1)
    shape = None if weights is None else weights.shape
    return group > 1 and shape is not None and shape[-1 if node.domain == DOMAIN else 0] == group


def _sources(node: ir.Node, sources: Mapping[ir.Value, Sources]) -> Sources:
    """The large values that a kernel reads to compute the node's result."""
    operands = node.inputs[:1] if _is_view(node) else node.inputs
    data = [v for v in operands if v is not None and _is_large(v, node.outputs[0])]
    read = frozenset[ir.Value | ir.Node]().union(*(sources.get(v, {v}) for v in data))
    return read | {node} if _is_by_channel(node) else read


def _is_large(value: ir.Value, result: ir.Value) -> bool:
    """Whether an operand may have as many elements as the result."""
    if value.is_initializer() or constant_of(value) is not None:
        return False
    sizes = [_size(v) for v in (value, result)]
    return None in sizes or sizes[0] == sizes[1]


def _size(value: ir.Value) -> int | None:
    return math.prod(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else None


def _is_reduction(node: ir.Node) -> bool:
    return node.op_type.startswith("Reduce") or node.op_type == "GlobalAveragePool"


def _kernels(graph: ir.Graph) -> Mapping[ir.Value, Kernels]:
    """The kernels that compute each value."""
    kernels: dict[ir.Value, Kernels] = {}
    for node in reversed(graph):
        for value in node.outputs:
            readers = [reader for reader in value.consumers() if reader.op_type != "Shape"]
            found = [_kernels_of(value, reader, kernels) for reader in readers]
            kernels[value] = frozenset([value] if value.is_graph_output() else []).union(*found)
    return kernels


def _kernels_of(value: ir.Value, reader: ir.Node, kernels: Mapping[ir.Value, Kernels]) -> Kernels:
    """The kernels that compute `value` for one reader."""
    if reader.graph is not value.graph:  # in a branch or a loop, which takes the value as an operand
        return frozenset([value])
    if _is_by_channel(reader):
        return frozenset([reader])
    if _merges(reader):
        (after,) = reader.outputs
        return frozenset([after]) if _is_shared(after, kernels) else kernels[after]
    return frozenset([value if facts(reader.op_type).has(Trait.PRODUCT) else reader])


def _is_shared(value: ir.Value, kernels: Mapping[ir.Value, Kernels]) -> bool:
    """Whether several readers would compute it in several kernels."""
    return len(kernels[value]) >= _SEVERAL and len(value.consumers()) >= _SEVERAL


def _keep(graph: ir.Graph, value: ir.Value) -> None:
    """Let all readers read `value` through a node that XLA keeps."""
    node, name = value.producer(), value.name
    assert node is not None
    value.name = f"{name}/merged"
    new = ir.Node(DOMAIN, "Kept", [value], name=f"{name}/kept")
    graph.insert_after(node, new)
    made = new.outputs[0]
    made.shape, made.type = value.shape, value.type
    ir.convenience.replace_all_uses_with(value, made, replace_graph_outputs=True)
    new.replace_input_with(0, value)
    made.name = name
