"""How messages and records name an operator: `domain.Type:version`, and with its node name and tensors."""

from __future__ import annotations

from functools import cache

import onnx_ir as ir
from onnx import defs

ONNX = ("", "ai.onnx")


def identifier(node: ir.Node, opset: int) -> str:
    """Domain, type and the version of the op that a model of this opset uses."""
    domain = "ai.onnx" if node.domain in ONNX else node.domain
    return f"{domain}.{node.op_type}:{_version(domain, node.op_type, opset)}"


def describe(node: ir.Node, opset: int) -> str:
    """An op as messages name it: ``name (Op(domain.Type:version, inputs=[...], outputs=[...]))``."""
    inputs = ", ".join(v.name or "" for v in node.inputs if v is not None)
    outputs = ", ".join(v.name or "" for v in node.outputs)
    graphs = [a.value.name or "" for a in node.attributes.values() if a.type is ir.AttributeType.GRAPH]
    inner = f"subgraphs=[{', '.join(graphs)}], " if graphs else ""
    text = f"Op({identifier(node, opset)}, {inner}inputs=[{inputs}], outputs=[{outputs}])"
    return f"{node.name} ({text})" if node.name else text


@cache
def _version(domain: str, op_type: str, opset: int) -> int:
    if domain != "ai.onnx":
        return 1
    try:
        return defs.get_schema(op_type, opset).since_version
    except defs.SchemaError:  # an op that PopART only has inside the IR
        return 1
