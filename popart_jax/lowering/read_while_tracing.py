"""Finds initializers whose values a trace may read, although they are arguments of the traced program."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ..model.checks.structure import every_node
from ..ops import facts
from .resolve import captures, find, needs

_SHAPES = frozenset({"Shape", "Size"})


def read_while_tracing(graph: ir.Graph, opsets: Mapping[str, int]) -> frozenset[str]:
    """Initializers behind operands that some node needs as constants, or that may determine a Loop's passes."""
    pending: list[ir.Value] = []
    for node in every_node(graph):
        row = find(node, opsets, popart=True)
        strict = facts(node.op_type).parameters
        for i, value in enumerate(node.inputs):
            if value is not None and (row is None or row.is_static(i) or i in strict or node.op_type == "Loop"):
                pending.append(value)
        if node.op_type == "Loop":
            pending.extend(captures(node))
    seen = set(pending)
    while pending:
        node = pending.pop().producer()
        if node is not None and node.op_type not in _SHAPES:
            fresh = [v for v in needs(node) if v not in seen]
            seen.update(fresh)
            pending += fresh
    return frozenset(v.name for v in seen if v.name and v.producer() is None and v.const_value is not None)
