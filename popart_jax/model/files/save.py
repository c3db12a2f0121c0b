"""Writing a model as PopART writes it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from ...errors import popart_exception
from ..attribute_names import DEBUG_INFO

_DEFAULT_OPSET = 10


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto; a model without ai.onnx operators still names an opset of ai.onnx.

    Debug numbers of nodes stay out of files: ONNX Runtime hands all attributes of a Relu to the Gemm that it fuses it
    into, and refuses a name that it does not know. Raises popart_exception where a name or an attribute is no text that
    a file can hold, such as half a surrogate pair of a file name.
    """
    try:
        proto = ir.to_proto(model)
    except ir.serde.SerdeError as err:
        if not isinstance(err.__cause__, UnicodeEncodeError):
            raise
        text = err.__cause__.object
        raise popart_exception(f"The model can't be written: {text!a} is no text that UTF-8 has a form for.") from err
    _drop_debug_numbers(proto.graph.node)
    if all(i.domain for i in proto.opset_import):
        proto.opset_import.add(domain="", version=_DEFAULT_OPSET)
    return proto


def _drop_debug_numbers(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for i in reversed(range(len(node.attribute))):
            if node.attribute[i].name == DEBUG_INFO:
                del node.attribute[i]
            else:
                _drop_debug_numbers(node.attribute[i].g.node)
