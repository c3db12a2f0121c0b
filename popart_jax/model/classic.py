"""Map types of ai.onnx.ml, which onnx_ir does not support."""

from __future__ import annotations

import onnx


def without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy whose dictionaries (of ZipMap, say) have no declared type; their operators need none."""
    declared = (proto.graph.input, proto.graph.output, proto.graph.value_info)
    if not any(holds_map(v.type) for values in declared for v in values):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for values in (copy.graph.input, copy.graph.output, copy.graph.value_info):
        for value in values:
            if holds_map(value.type):
                value.ClearField("type")
    return copy


def holds_map(kind: onnx.TypeProto) -> bool:
    """Whether a type is a dictionary, or a sequence or optional of them."""
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return holds_map(getattr(kind, which).elem_type)
    return which == "map_type"
