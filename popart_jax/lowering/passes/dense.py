"""Transposes of dense weights become nodes of their own, so that a program that trains keeps the weights so.

Source: on XLA:CPU a matmul that reads its weight transposed takes up to twice the time of a plain one.
"""

from __future__ import annotations

import onnx_ir as ir


def untranspose_weights(graph: ir.Graph) -> bool:
    """Rewrite each `Gemm` with transB whose weight is an initializer, in place; returns whether anything changed."""
    changed = False
    for node in list(graph):
        if node.op_type == "Gemm" and node.domain in ("", "ai.onnx") and node.attributes.get_int("transB", 0):
            weight = node.inputs[1]
            if weight is not None and weight.const_value is not None:
                _untranspose(graph, node, weight)
                changed = True
    return changed


def _untranspose(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    name = f"{weight.name}/laid_out_for/{node.outputs[0].name}"
    turned = ir.node("Transpose", [weight], {"perm": [1, 0]}, version=1, name=name)
    turned.outputs[0].name = name
    graph.insert_before(node, turned)
    node.replace_input_with(1, turned.outputs[0])
    node.attributes.pop("transB")
