"""Whole-graph clean-up: what onnx_ir offers, made safe for PopART's op semantics."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from ._context import bodies
from .operators import Operators, facts_of


def inline_functions(model: ir.Model) -> bool:
    """Replace calls of model-local functions by their bodies; True when something changed."""
    return bool(model.functions) and InlinePass()(model).modified


def remove_unused(graph: ir.Graph, operators: Operators, protected: frozenset[str] = frozenset()) -> int:
    """Remove nodes whose results nobody needs, in one backward walk; the number removed.

    onnx_ir's own pass is not used: it also drops unread *outputs*, and their number says in which mode a
    BatchNormalization is. Ops that act by side effect and protected tensors stay.
    """
    count = 0
    for node in reversed(graph):
        subgraphs = bodies(node)
        if not _is_read(node, protected) and not _acts(node, operators):
            node.resize_inputs(0)
            _release(subgraphs)
            graph.remove(node)
            count += 1
        else:
            count += sum(remove_unused(g, operators, protected) for g in subgraphs)
    return count


def _is_read(node: ir.Node, protected: frozenset[str]) -> bool:
    """Whether a result of the node is needed, or it has none."""
    return not node.outputs or any(o.is_graph_output() or o.name in protected or o.uses() for o in node.outputs)


def _acts(node: ir.Node, operators: Operators) -> bool:
    """Whether the node or one inside it acts by side effect."""
    inner = (n for body in bodies(node) for n in body.all_nodes())
    return any(facts_of(n, operators).has_effect for n in (node, *inner))


def _release(subgraphs: list[ir.Graph]) -> None:
    """Remove the uses that the bodies of a removed node make of tensors of the enclosing graphs."""
    for graph in subgraphs:
        for node in graph.all_nodes():
            node.resize_inputs(0)
