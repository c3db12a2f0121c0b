"""What onnx_ir has no place for: map types of ai.onnx.ml, and the training information of a model."""

from __future__ import annotations

from typing import cast

import onnx
import onnx_ir as ir

_DECLARED = "popart_jax.declared_type"
_TRAINING = "popart_jax.training_info"


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


def note_left_out(proto: onnx.ModelProto, model: ir.Model) -> None:
    """Keep in a model's notes what `onnx_ir` did not take over from its message."""
    for declared, values in ((proto.graph.input, model.graph.inputs), (proto.graph.output, model.graph.outputs)):
        for info, value in zip(declared, values, strict=True):
            if holds_map(info.type):
                value.meta[_DECLARED] = info.type
    if proto.training_info:
        model.meta[_TRAINING] = tuple(proto.training_info)


def whole_proto(model: ir.Model) -> onnx.ModelProto:
    """The message of a model, with what `note_left_out` kept; a file without these types is refused elsewhere."""
    proto = ir.to_proto(model)
    for declared, values in ((proto.graph.input, model.graph.inputs), (proto.graph.output, model.graph.outputs)):
        for info, value in zip(declared, values, strict=True):
            if _DECLARED in value.meta:
                info.type.CopyFrom(cast("onnx.TypeProto", value.meta[_DECLARED]))
    proto.training_info.extend(cast("tuple[onnx.TrainingInfoProto, ...]", model.meta.get(_TRAINING, ())))
    return proto
