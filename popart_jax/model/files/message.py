"""Checks of a ModelProto before onnx_ir reads it, which would keep only the last of duplicate entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

from ...errors import popart_exception
from .external import check_numbers, is_external


def check_message(proto: onnx.ModelProto) -> None:
    """Raise popart_exception for invalid UTF-8, double names and attributes, and bad offsets of external data."""
    _check_depth(proto)
    for text in _texts(proto):
        if type(text) is bytes:  # protobuf returns text that is not UTF-8 as bytes
            raise popart_exception(f"The model is invalid: the name {text!r} is no UTF-8 text; the file is damaged.")
    _check_versions(proto)
    _check_domains_once(proto)
    _check_functions(proto)
    for nodes in (proto.graph.node, *(f.node for f in proto.functions)):
        _check_attributes_once(nodes)
    for graph in all_graphs(proto):
        _check_names(graph)
        _check_types(graph)
        for tensor in filter(is_external, _tensors(graph)):
            check_numbers(tensor)
    for function in proto.functions:
        for tensor in filter(is_external, _tensors_of_nodes(function.node)):
            check_numbers(tensor)


_VERSIONS = range(-(1 << 31), 1 << 31)


def _check_versions(proto: onnx.ModelProto) -> None:
    """Check that version numbers are in range; whether they are known is checked where they are used."""
    for entry in (*proto.opset_import, *(e for f in proto.functions for e in f.opset_import)):
        if entry.version not in _VERSIONS:
            raise popart_exception(
                f"The model imports opset {entry.version} of {entry.domain or 'ai.onnx'}: no version."
            )


_DEEPEST = 100
"""Limit of nested graphs; protobuf's own limit allows a third of that in a file."""


def _check_depth(proto: onnx.ModelProto) -> None:
    level = [
        graph for nodes in (proto.graph.node, *(f.node for f in proto.functions)) for n in nodes for graph in _bodies(n)
    ]
    for _ in range(_DEEPEST):
        level = [graph for outer in level for n in outer.node for graph in _bodies(n)]
    if level:
        raise popart_exception(
            f"The model is invalid: graph '{level[0].name}' lies inside more than {_DEEPEST} others."
        )


def _check_domains_once(proto: onnx.ModelProto) -> None:
    versions = {("" if e.domain == "ai.onnx" else e.domain, e.version) for e in proto.opset_import}
    overloads = [f"{f.domain}.{f.name}{':' * bool(f.overload)}{f.overload}" for f in proto.functions]
    _check_once("function", overloads)
    _check_once("opset_import", [domain for domain, _ in versions])


def _check_names(graph: onnx.GraphProto) -> None:
    if twice := _twice(v.name for v in graph.input):
        raise popart_exception(f"Invalid ONNX Model : repeated name: ({twice[0]}) in input list")
    dense = [t.name for t in graph.initializer]
    _check_once("initializer", dense + [s.values.name for s in graph.sparse_initializer])


def _check_once(what: str, names: Iterable[str]) -> None:
    if twice := _twice(names):
        raise popart_exception(f"Duplicate graph {what}(s) {twice}: each {what} needs a name of its own.")


def _twice(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _check_functions(proto: onnx.ModelProto) -> None:
    for function in proto.functions:
        if not function.name:
            raise popart_exception(f"The model is invalid: a function of domain '{function.domain}' has no name.")
        for what, names in (("input", function.input), ("output", function.output)):
            if twice := _twice(names):
                raise popart_exception(
                    f"Function '{function.name}' has {what}(s) {twice} more than once: each needs a name of its own."
                )


def _check_attributes_once(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        names = [a.name for a in node.attribute]
        if len(set(names)) != len(names):
            raise popart_exception(
                f"Node '{node.name or node.op_type}' has the attribute(s) {_twice(names)} more than once; "
                "which counts is open."
            )
        for graph in _bodies(node):
            _check_attributes_once(graph.node)


_TYPES = set(onnx.TensorProto.DataType.values())


def _check_types(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type.elem_type
        if kind not in _TYPES:
            raise popart_exception(f"Tensor '{value.name}' is declared with the unknown element type {kind}.")


def all_graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph, and those inside nodes, of functions too."""
    yield from _graphs(proto.graph)
    for function in proto.functions:
        for node in function.node:
            for body in _bodies(node):
                yield from _graphs(body)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for body in _bodies(node):
            yield from _graphs(body)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Tensors of one graph, in initializers and attributes."""
    yield from graph.initializer
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        yield from (a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR)


def _texts(proto: onnx.ModelProto) -> Iterator[str | bytes]:
    """Every text that we read."""
    yield from (entry.domain for entry in proto.opset_import)
    for function in proto.functions:
        yield from (function.name, function.domain, function.overload, *function.input, *function.output)
        yield from (entry.domain for entry in function.opset_import)
        yield from function.attribute
        yield from _texts_of_nodes(function.node)
    yield from _texts_of_graph(proto.graph)


def _texts_of_graph(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    yield graph.name
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (d.dim_param for d in value.type.tensor_type.shape.dim if d.HasField("dim_param"))
    yield from _texts_of_nodes(graph.node)


def _texts_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[str | bytes]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for graph in _bodies(node):
            yield from _texts_of_graph(graph)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs
