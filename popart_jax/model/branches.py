"""Converts subgraphs from PopART's builder, of whose inputs some stand for the enclosing graph's tensors of that name.

In ONNX subgraphs read tensors of the enclosing graphs by name: branches have no inputs, and the body of a Loop or Scan
has those that the node passes by position.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from .checks.structure import bodies


def bind_branch_inputs(graph: ir.Graph, outer: Mapping[str | None, ir.Value] | None = None) -> None:
    """Replace inputs of subgraphs that the node does not pass by the tensors of the same names in enclosing graphs."""
    visible = dict(outer or {})
    visible.update((v.name, v) for v in (*graph.inputs, *graph.initializers.values()))
    for node in graph:
        for _, inner in bodies(node):
            if node.domain == "" and node.op_type in ("If", "Loop", "Scan"):
                _bind(inner, visible, 0 if node.op_type == "If" else len(node.inputs))
            bind_branch_inputs(inner, visible)
        visible.update((v.name, v) for v in node.outputs)


def _bind(branch: ir.Graph, visible: Mapping[str | None, ir.Value], passed: int) -> None:
    named = [v for v in branch.inputs if v.name in visible]
    for value in named[-(len(branch.inputs) - passed) :] if len(branch.inputs) > passed else ():
        source = visible[value.name]
        branch.inputs.remove(value)
        if value in branch.outputs:
            _hand_through(branch, value, source)
        ir.convenience.replace_all_uses_with(value, source)


def _hand_through(branch: ir.Graph, value: ir.Value, source: ir.Value) -> None:
    """Add an Identity for an outer tensor that a branch returns: outputs must be computed inside."""
    passed = ir.Node("", "Identity", [source], outputs=[ir.Value(shape=source.shape, type=source.type)])
    branch.append(passed)
    for i, out in enumerate(branch.outputs):
        if out is value:
            branch.outputs[i] = passed.outputs[0]
