"""Annotations of nodes that PopART checks when it makes the ops: patterns, in-place forms, called subgraphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from patterns import catalogue

from ...enums import VirtualGraphMode
from ...model.attribute_names import EXCLUDE_PATTERNS, INPLACE_NAMES, INPLACE_PRIORITIES, VIRTUAL_GRAPH
from ...model.checks.structure import every_node
from ...model.op_names import describe
from ..options.session_options import SessionOptions


def check_annotations(
    graph: ir.Graph, opsets: Mapping[str, int], options: SessionOptions, variables: Collection[str]
) -> Iterator[str]:
    """Errors of the annotations of all nodes, in the order of the nodes; then those of the readers of `variables`."""
    for node in every_node(graph):
        yield from _patterns(node)
        yield from _inplace_forms(node)
        if options.enablePipelining and node.op_type == "Call":
            yield from _called(node, opsets)
    if options.enablePipelining and options.virtualGraphMode is not VirtualGraphMode.Off:
        for name in variables:
            yield from _on_several_graphs(graph.initializers[name])


def _on_several_graphs(variable: ir.Value) -> Iterator[str]:
    if len({_virtual_graph(node) for node in variable.consumers()} - {None}) > 1:
        yield (
            f"Can not copy variable tensor {variable.name} between virtual graphs when pipelining. All pipeline stages "
            "using this tensor should be on the same graph."
        )


def _patterns(node: ir.Node) -> Iterator[str]:
    for name in _strings(node, EXCLUDE_PATTERNS):
        if catalogue.find(name) is None:
            yield f"Invalid pattern name '{name}' in Op::excludePatterns"


def _inplace_forms(node: ir.Node) -> Iterator[str]:
    given = [key for key in (INPLACE_NAMES, INPLACE_PRIORITIES) if key in node.attributes]
    if len(given) == 1:
        yield (
            f"Either BOTH or NEITHER of the fields {INPLACE_NAMES} and {INPLACE_PRIORITIES} must be set, but only "
            f"{given[0]} is set"
        )
    elif given:
        forms, priorities = (len(node.attributes[key].value) for key in given)
        if forms != priorities:
            yield (
                f"For fields {INPLACE_PRIORITIES}, {INPLACE_NAMES}, the number of elements must be the same "
                f"[ {priorities} != {forms} ]"
            )


def _called(call: ir.Node, opsets: Mapping[str, int]) -> Iterator[str]:
    """Errors of a pipeline's Call: the ops of its subgraph must be on the virtual graph of the Call."""
    callee = call.attributes["callee"].as_graph()
    own = _virtual_graph(call)
    for node in callee:
        if node.op_type == "Constant":
            continue
        found, shown = _virtual_graph(node), describe(node, opsets.get(node.domain, 1), f"{callee.name}/")
        if found is None:
            yield (
                f'Op {shown} in subgraph "{callee.name}" does not have a virtual graph id. When pipelining, subgraph '
                "ops must have a virtual graph id set."
            )
        elif own is not None and found != own:
            yield (
                f'The virtual graph id ({found}) for Op {shown} in subgraph "{callee.name}" does not match the virtual '
                f"graph id ({own}) of the calling op. When pipelining, subgraph ops must have a virtual graph id "
                "matching the calling op. If you are trying to call the same subgraph from different pipeline stages, "
                "you will need to create a separate subgraph for each virtual graph."
            )


def _virtual_graph(node: ir.Node) -> int | None:
    return node.attributes.get_int(VIRTUAL_GRAPH) if VIRTUAL_GRAPH in node.attributes else None


def _strings(node: ir.Node, name: str) -> tuple[str, ...]:
    return tuple(node.attributes[name].value or ()) if name in node.attributes else ()
