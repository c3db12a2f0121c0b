"""Types of tensors inside called graphs: bound from the call, then inferred op by op as the builder does it."""

from __future__ import annotations

import contextlib

import onnx_ir as ir

from patterns import static_shape

from ..builder.body_types import BODIES
from ..builder.infer import infer, known, set_type
from ..errors import popart_exception
from ..model.node_parts import BodyTypes, SubgraphNode
from ..ops.builder_methods import methods_of
from . import nodes


def fill(graph: ir.Graph, opset: int) -> None:
    """Infer missing types in `graph` and in the bodies of its ops."""
    for node in graph:
        for body in nodes.subgraphs(node):
            _bind(node, body)
            fill(body, opset)
        if any(static_shape(o) is None or o.dtype is None for o in node.outputs):
            _infer(node, opset)


def _bind(node: ir.Node, body: ir.Graph) -> None:
    """Inputs of a body without a type take those that the op passes."""
    rule = _rule(node)
    if rule is None:
        return
    attributes = {a.name: a.value for a in node.attributes.values() if a.type is not ir.AttributeType.GRAPH}
    given = SubgraphNode(node.name or "", [known(v) for v in node.inputs], None, attributes, len(node.outputs))
    for inner, (dtype, shape) in zip(body.inputs, rule.passed(given), strict=False):
        if static_shape(inner) is None and shape is not None:
            set_type(inner, dtype, shape)


def _rule(node: ir.Node) -> BodyTypes | None:
    if node.domain in ("", "ai.onnx"):
        return BODIES.get(node.op_type)
    return next((method.bodies for method in methods_of(node.op_type)), None)


def _infer(node: ir.Node, opset: int) -> None:
    with contextlib.suppress(popart_exception):  # the session raises the error; here the type stays unknown
        infer(node, node.version or opset)
