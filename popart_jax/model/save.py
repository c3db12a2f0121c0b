"""Writing a model as PopART writes it."""

from __future__ import annotations

import onnx
import onnx_ir as ir


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto; a model without any operator still names an opset."""
    proto = ir.to_proto(model)
    if not proto.opset_import:
        proto.opset_import.add(domain="", version=10)
    return proto
