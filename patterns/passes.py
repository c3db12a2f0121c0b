"""Whole-graph clean-up: what onnx_ir offers, made safe for PopART's op semantics."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from ._context import bodies

EFFECTS = frozenset({"PrintTensor", "Abort", "CopyVarUpdate", "RemoteStore", "HostStore"})


def inline_functions(model: ir.Model) -> bool:
    """Replace calls of model-local functions by their bodies; True when something changed."""
    return bool(model.functions) and InlinePass()(model).modified


def remove_unused(graph: ir.Graph, protected: frozenset[str] = frozenset()) -> int:
    """Remove nodes whose results nobody needs, in one backward walk; the number removed.

    onnx_ir's own pass is not used: it also drops unread *outputs*, and PopART tells the modes of
    BatchNormalization apart by their number. Ops that act by side effect and protected tensors stay.
    """
    count = 0
    for node in reversed(graph):
        subgraphs = bodies(node)
        if not _needed(node, protected) and not any(n.op_type in EFFECTS for g in subgraphs for n in g.all_nodes()):
            node.resize_inputs(0)
            _release(subgraphs)
            graph.remove(node)
            count += 1
        else:
            count += sum(remove_unused(g, protected) for g in subgraphs)
    return count


def _needed(node: ir.Node, protected: frozenset[str]) -> bool:
    if node.op_type in EFFECTS or not node.outputs:
        return True
    return any(o.is_graph_output() or o.name in protected or o.uses() for o in node.outputs)


def _release(subgraphs: list[ir.Graph]) -> None:
    """The bodies of a removed node stop reading tensors of the enclosing graphs."""
    for graph in subgraphs:
        for node in graph.all_nodes():
            node.resize_inputs(0)
