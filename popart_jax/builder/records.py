"""Debug records of builder calls: one for the call, one for its ONNX node or tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx_ir as ir

from ..model.debug import DebugContext, DebugInfo, record, recording
from ..model.dtypes import element_type

_LAYER, _ONNX_LAYER = "popartbuilder", "onnx"


def record_input(context: DebugContext | str, value: ir.Value, api: str) -> int:
    """Record an input or initializer; returns the record's number, which goes into the model's metadata."""
    info = DebugInfo(cast("DebugContext", context), _LAYER)  # the call itself converts a str
    if not recording():
        return info.getId()
    shape = None if value.shape is None else list(value.shape.numpy())
    known = {
        "category": "variable",
        "api": api,
        "tensorId": value.name,
        "shape": None if shape is None else f"[{' '.join(map(str, shape))}]",
        "type": None if value.dtype is None else element_type(value.dtype).name,
    }
    for name, fact in known.items():
        if fact is not None:
            info.setValue(name, fact)
    inner = DebugContext(info, "")
    described = {"name": value.name, "type": {"shape": shape}}
    record(inner, _ONNX_LAYER, category="variable", valueInfoProto=described)
    if value.const_value is not None:
        tensor = {"name": value.name, "dims": shape, "dataType": value.const_value.dtype.value}
        record(inner, _ONNX_LAYER, category="variable", tensorProto=tensor)
    return info.getId()


def record_node(
    node: ir.Node,
    context: DebugContext | str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, Any],
    api: str,
) -> None:
    """Record an operator call and its node, if a debug file is open."""
    info = record(
        context,
        _LAYER,
        category="api",
        api=api or node.op_type.lower(),
        inputs=list(inputs) or None,
        outputs=list(outputs) or None,
        attributes={k: str(v.name if isinstance(v, ir.Graph) else v) for k, v in attributes.items()},
    )
    if info is not None:
        record(
            DebugContext(info, ""),
            _ONNX_LAYER,
            category="op",
            input=list(inputs),
            output=list(outputs),
            opName=node.name,
            opType=node.op_type,
            domain=node.domain,
            attribute=sorted(attributes),
        )
