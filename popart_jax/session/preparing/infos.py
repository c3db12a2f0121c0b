"""Host-side types of tensors: what `getInfo` and anchor arrays show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ...execution import Type
from ...model.checks.structure import bodies
from ...ops import Trait, facts

_WIDE = {np.dtype(np.int32): np.dtype(np.int64), np.dtype(np.uint32): np.dtype(np.uint64)}
_WIDE_ONNX = {ir.DataType.INT64, ir.DataType.UINT64}
_TYPED_BY = {"Where": 1, "OneHot": 2}
"""Operand whose type is that of the result, where it is not the first."""


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
            if not facts(node.op_type).has(Trait.INDEX_RESULT) and _is_wide(node, value, wide, device):
                mark(value)
    return found


def _is_wide(node: ir.Node, value: ir.Value, wide: set[str], device: Mapping[str, Type]) -> bool:
    """Whether a result has 64 bits: ONNX says so, and the whole numbers that it is made of have them.

    ONNX takes indices, which have 32 bits here, for 64-bit numbers, and so what follows from them.
    """
    if node.op_type in ("Shape", "Size", "NonZero"):
        return True
    if node.op_type == "Cast":
        return ir.DataType(node.attributes.get_int("to", 0)) in _WIDE_ONNX
    if node.op_type in ("Constant", "ConstantOfShape"):
        given = node.attributes.get("value")
        return given is not None and given.value is not None and given.value.dtype in _WIDE_ONNX
    if value.dtype is not None and value.dtype not in _WIDE_ONNX:
        return False
    operand = next((v.name or "" for v in node.inputs[_TYPED_BY.get(node.op_type, 0) :] if v is not None), "")
    whole = operand in device and device[operand].dtype.kind in "iu"
    return operand in wide if value.dtype is None or (whole and not any(bodies(node))) else True
