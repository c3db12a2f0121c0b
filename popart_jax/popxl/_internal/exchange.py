"""Nodes that move data, also inside a merged exchange."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


def parts(node: ir.Node) -> Sequence[ir.Node]:
    """The nodes that a merged exchange stands for; any other node stands for itself."""
    return node.meta["parts"] if node.op_type == "MultiExchange" else (node,)
