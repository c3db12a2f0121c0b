"""A Relu that several nodes read is computed once.

Source: XLA:CPU (jaxlib 0.10) fuses an elementwise operator with one large operand into each of its readers. The Relu
at the end of a residual block is read by the next block and by its sum: that sum would be fused with the sums of all
blocks before it, whose operands would stay in memory. `SharedRelu` is a selection, which has two large operands.
"""

from __future__ import annotations

import onnx_ir as ir

from ..kernels import DOMAIN
from .channels_last import take_over


def share_relus(graph: ir.Graph) -> bool:
    """Rewrite each Relu with several readers, in place; returns whether anything changed."""
    changed = False
    for node in list(graph):
        if node.op_type == "Relu" and node.domain in ("", "ai.onnx") and len(node.outputs[0].uses()) > 1:
            _rewrite(graph, node)
            changed = True
    return changed


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    new = ir.Node(DOMAIN, "SharedRelu", list(node.inputs), name=node.name)
    graph.insert_before(node, new)
    take_over(node.outputs[0], new.outputs[0])
    graph.remove(node, safe=True)
