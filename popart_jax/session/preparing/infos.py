"""Host-side types of tensors: what `getInfo` and anchor arrays show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ...execution import Type
from ...ops import Trait, facts

_WIDE = {np.dtype(np.int32): np.dtype(np.int64), np.dtype(np.uint32): np.dtype(np.uint64)}
_WIDE_ONNX = {ir.DataType.INT64, ir.DataType.UINT64}


def host_types(graph: ir.Graph, device: Mapping[str, Type]) -> dict[str, Type]:
    """Types as the IR has them: it keeps 64-bit integers, except for indices that operators compute."""
    wide: set[str] = set()
    found = dict(device)

    def mark(value: ir.Value) -> None:
        kind = device.get(value.name or "")
        if kind is not None and kind.dtype in _WIDE:
            wide.add(value.name or "")
            found[value.name or ""] = Type(kind.shape, _WIDE[kind.dtype])

    for value in (*graph.inputs, *graph.initializers.values()):
        if value.dtype in _WIDE_ONNX:
            mark(value)
    for node in graph:
        for value in node.outputs:
            if not facts(node.op_type).has(Trait.INDEX_RESULT) and _is_wide(node, value, wide):
                mark(value)
    return found


def _is_wide(node: ir.Node, value: ir.Value, wide: set[str]) -> bool:
    if node.op_type in ("Shape", "Size", "NonZero"):
        return True
    if node.op_type == "Cast":
        return ir.DataType(node.attributes.get_int("to", 0)) in _WIDE_ONNX
    if node.op_type in ("Constant", "ConstantOfShape"):
        given = node.attributes.get("value")
        return given is not None and given.value is not None and given.value.dtype in _WIDE_ONNX
    if value.dtype is not None:
        return value.dtype in _WIDE_ONNX
    first = next((v for v in node.inputs if v is not None), None)
    return first is not None and first.name in wide
