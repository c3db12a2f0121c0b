"""Operands and results of a node as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

Values = Sequence[ir.Value | None]


def connected(values: Values) -> dict[int, Any]:
    """Tensors by index; positions that are not connected have none."""
    return {i: v.meta["tensor"] for i, v in enumerate(values) if v is not None and "tensor" in v.meta}


def tensor_at(values: Values, index: int) -> Any | None:
    """The tensor at an index, if one is connected there."""
    value = values[index] if 0 <= index < len(values) else None
    return None if value is None else value.meta.get("tensor")
