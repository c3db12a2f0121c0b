"""Types of tensors inside called graphs: bound from the call, then inferred op by op as the builder does it."""

from __future__ import annotations

import contextlib

import onnx_ir as ir

from patterns import static_shape

from ..builder.infer import infer, set_type
from ..errors import popart_exception
from . import nodes


def fill(graph: ir.Graph, opset: int) -> None:
    """Infer what is missing in `graph` and, from there, in the bodies of its ops."""
    for node in graph:
        for body in nodes.subgraphs(node):
            _bind(node, body)
            fill(body, opset)
        if any(static_shape(o) is None or o.dtype is None for o in node.outputs):
            _infer(node, opset)


def _bind(node: ir.Node, body: ir.Graph) -> None:
    """Inputs of a body take the types of the arguments; Loop gives the first two itself, Scan slices the last ones."""
    if node.op_type == "Scan":
        _bind_scan(node, body)
        return
    arguments = list(node.inputs) if node.op_type in ("Call", "Loop") else []
    for inner, outer in zip(body.inputs, arguments, strict=False):
        if outer is not None and static_shape(inner) is None and static_shape(outer) is not None:
            set_type(inner, outer.dtype, static_shape(outer))


def _bind_scan(node: ir.Node, body: ir.Graph) -> None:
    sliced = len(node.inputs) - int(nodes.attribute(node, "num_scan_inputs", 0))
    axes = nodes.attribute(node, "scan_input_axes") or [0] * len(node.inputs)
    for i, (inner, outer) in enumerate(zip(body.inputs, node.inputs, strict=False)):
        shape = static_shape(outer)
        if outer is None or shape is None or static_shape(inner) is not None:
            continue
        if i >= sliced:
            axis = axes[i - sliced] % len(shape)
            shape = shape[:axis] + shape[axis + 1 :]
        set_type(inner, outer.dtype, shape)


def _infer(node: ir.Node, opset: int) -> None:
    with contextlib.suppress(popart_exception):  # the session says what is wrong; here a type is unknown
        infer(node, node.version or opset)
