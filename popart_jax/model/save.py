"""Writing a model as PopART writes it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

_DEFAULT_OPSET = 10


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto; a model without ai.onnx operators still names an opset of ai.onnx."""
    proto = ir.to_proto(model)
    if all(i.domain for i in proto.opset_import):
        proto.opset_import.add(domain="", version=_DEFAULT_OPSET)
    return proto
