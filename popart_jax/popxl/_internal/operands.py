"""Operands and results of a node as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import onnx_ir as ir

Values = Sequence[ir.Value | None]


def op_of(node: ir.Node) -> Any:
    """The `Op` of a node; that class is built on this module."""
    return cast("Any", node.meta["op"])


def tensor_of(value: ir.Value) -> Any:
    """The `Tensor` of a value."""
    return cast("Any", value.meta["tensor"])


def plain_attributes(op: Any) -> dict[str, Any]:
    """What an operator computes with: its attributes without the annotations."""
    return {a.name: a.value for a in op._node.attributes.values() if not a.name.startswith("__")}


def connected(values: Values) -> dict[int, Any]:
    """Tensors by index; positions that are not connected have none."""
    return {i: tensor_of(v) for i, v in enumerate(values) if v is not None and "tensor" in v.meta}


def tensor_at(values: Values, index: int) -> Any | None:
    """The tensor at an index, if one is connected there."""
    value = values[index] if 0 <= index < len(values) else None
    return None if value is None else cast("Any", value.meta.get("tensor"))
