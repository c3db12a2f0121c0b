"""Selects outputs of a model, and drops what these do not need."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ..errors import popart_exception


def select_outputs(model: ir.Model, outputs: Sequence[str]) -> None:
    """Make `outputs` the outputs of a loaded model, and drop the nodes that they do not need.

    A name that is no tensor of the model raises popart_exception.
    """
    graph = model.graph
    values = {v.name: v for v in graph.inputs} | {v.name: v for node in graph for v in node.outputs}
    missing = [n for n in outputs if n not in values]
    if missing:
        raise popart_exception(f"The model has no tensor(s) {missing}; outputs must be inputs or results of its nodes.")
    graph.outputs[:] = [values[n] for n in outputs]
    RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [v for v in graph.inputs if _is_used(v) and v.name not in graph.initializers]
    for name in [n for n, v in graph.initializers.items() if not _is_used(v)]:
        del graph.initializers[name]


def ensure_outputs(model: ir.Model) -> None:
    """Give a model without outputs, as PopART saves trained ones, the results that no node reads.

    Constants are left out, and so are unread outputs of nodes with another output that is read.
    """
    graph = model.graph
    if graph.outputs:
        return
    ends = [node for node in graph if not any(_is_used(v) for v in node.outputs)]
    graph.outputs.extend(v for node in ends if node.op_type != "Constant" for v in node.outputs if v.name)


def _is_used(value: ir.Value) -> bool:
    """Whether a node, of a subgraph too, or the graph's caller reads it."""
    return bool(value.uses()) or value.is_graph_output()
