"""Outlining: an op that occurs several times with equal types lives once in a subgraph that every occurrence calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import onnx_ir as ir

from patterns import static_shape

from . import nodes
from .sharing import all_graphs
from .versions import identifier

EXPENSIVE = frozenset(
    [
        "Conv",
        "ConvWeightsGrad",
        "ConvDataGrad",
        "MultiConv",
        "MultiConvWeightsGrad",
        "MultiConvDataGrad",
        "MatMul",
        "LSTM",
        "LSTMGrad",
        "GRU",
        "GRUGrad",
        "RNN",
        "RNNGrad",
        "BatchNormalization",
        "BatchNormalizationGrad",
        "GroupNormalization",
        "GroupNormalizationGrad",
        "InstanceNormalization",
        "InstanceNormalizationGrad",
        "ReplicatedAllReduce",
        "ReplicatedReduceScatter",
        "ReplicatedAllGather",
        "Histogram",
    ]
)
REPLACED = "replaced"  # on a Call: identifier, inputs and name of the op it stands for
VALUE_OF_EXPENSIVE, VALUE_OF_CHEAP = 1000.0, 0.1
NEVER = frozenset(
    {"Call", "If", "Loop", "Scan", "IpuCopy", "Stash", "Restore", "Init", "HostLoad", "HostStore", "GetRandomSeed"}
)


def outline(graph: ir.Graph, threshold: float, numbers: Iterator[int]) -> None:
    """Outline repeated ops of the main graph and its subgraphs whose value exceeds the threshold."""
    opset = graph.opset_imports.get("", 11)
    groups: dict[Hashable, list[ir.Node]] = {}
    for node in (n for each in all_graphs(graph) for n in each):
        if node.op_type not in NEVER and not nodes.subgraphs(node) and _value(node) > threshold:
            groups.setdefault(_key(node), []).append(node)
    for occurrences in groups.values():
        if len(occurrences) > 1:
            _outline(occurrences, f"call_subgraph({next(numbers)})", opset)


def _value(node: ir.Node) -> float:
    return VALUE_OF_EXPENSIVE if node.op_type in EXPENSIVE else VALUE_OF_CHEAP


def _key(node: ir.Node) -> Hashable:
    """Occurrences must agree in op type, types of tensors, attributes (outlining and IPU included) and context."""
    types = tuple((v.dtype, static_shape(v)) if v is not None else None for v in (*node.inputs, *node.outputs))
    attributes = tuple(sorted((k, _plain(a)) for k, a in node.attributes.items() if k != "__pipeline_stage"))
    same_inputs = tuple(node.inputs.index(v) for v in node.inputs)
    return node.op_type, len(node.inputs), types, attributes, same_inputs, node.meta.get(nodes.CONTEXT)


def _plain(attribute: ir.Attr) -> str:
    value = attribute.value
    return repr(tuple(value)) if isinstance(value, (list, tuple)) else repr(value)


def _outline(occurrences: list[ir.Node], name: str, opset: int) -> None:
    body = _body(occurrences[0], name)
    for node in occurrences:
        call = nodes.make("Call", [v for v in node.inputs if v is not None], [], like=node, attributes={"callee": body})
        call.resize_outputs(len(node.outputs))
        call.meta[REPLACED] = (identifier(node, opset), [v.name or "" for v in node.inputs if v is not None], node.name)
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        graph.insert_before(node, call)
        for old, new in zip(node.outputs, call.outputs, strict=True):
            old_name, old.name = old.name, None
            new.name, new.type, new.shape = old_name, old.type, old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        graph.remove(node, safe=True)


def _body(node: ir.Node, name: str) -> ir.Graph:
    present = [v for v in node.inputs if v is not None]
    inputs = [nodes.tensor(f"in_{i}", v) for i, v in enumerate(present)]
    renamed: Iterator[ir.Value] = iter(inputs)
    operands = [None if v is None else next(renamed) for v in node.inputs]
    outputs = [nodes.tensor(f"out_{i}", v) for i, v in enumerate(node.outputs)]
    inner = nodes.make(node.op_type, operands, outputs, domain=node.domain, like=node, attributes=dict(node.attributes))
    inner.meta[nodes.CONTEXT] = "Subgraph"
    return ir.Graph(inputs, outputs, nodes=[inner], name=name)
