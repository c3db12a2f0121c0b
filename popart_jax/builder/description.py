"""The facts of a node that determine its output types: operator, attributes, types and small values of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from ..model.node_parts import Type as Type

UNKNOWN: Type = (None, None)

_SHAPE_TYPES = (ir.DataType.INT64, ir.DataType.INT32)
_KNOWN_VALUE_LIMIT = 1024  # elements of an integer constant that inference may look at
_KNOWN_SCALES_LIMIT = 8  # the same for other types, such as scales of Resize


@dataclass(frozen=True, slots=True)
class Operand:
    """An input: element type, shape (None if unknown; an unknown dimension is a text), bytes if constant."""

    dtype: ir.DataType | None
    sizes: tuple[int | str, ...] | None
    data: bytes | None

    @property
    def type(self) -> Type:
        """Element type and shape, as far as they are known numbers."""
        sizes = self.sizes
        known = sizes is not None and all(isinstance(d, int) for d in sizes)
        return self.dtype, tuple(int(d) for d in sizes or ()) if known else None

    def array(self) -> np.ndarray | None:
        """The value of a constant."""
        if self.data is None or self.dtype is None:
            return None
        return np.frombuffer(self.data, self.dtype.numpy()).reshape(self.type[1] or ())


@dataclass(frozen=True, slots=True)
class Description:
    """One node without its names; equal descriptions have results of equal types."""

    domain: str
    op: str
    version: int
    operands: tuple[Operand | None, ...]
    attributes: tuple[tuple[str, ir.AttributeType, Any], ...]
    outputs: int

    def attribute(self, name: str) -> Any:
        """Value of an attribute, None without it."""
        return next((value for key, _, value in self.attributes if key == name), None)

    def ir_attributes(self) -> list[ir.Attr]:
        """The attributes as a node holds them."""
        return [ir.Attr(*one) for one in self.attributes]


def describe(node: ir.Node, version: int) -> Description:
    """The description of a node at an opset version; PopART's own annotations are left out."""
    attributes = tuple(
        (a.name, a.type, tuple(cast("list[Any]", a.value)) if isinstance(a.value, list) else a.value)
        for a in node.attributes.values()
        if not a.name.startswith("__")
    )
    operands = tuple(None if v is None else describe_value(v) for v in node.inputs)
    return Description(node.domain, node.op_type, version, operands, attributes, len(node.outputs))


def describe_value(value: ir.Value) -> Operand:
    """A tensor as an operand: its type, and its value if that is a small constant."""
    sizes = None if value.shape is None else tuple(d if isinstance(d, int) else str(d.value or "") for d in value.shape)
    return Operand(value.dtype, sizes, _data(value.const_value))


def _data(tensor: ir.TensorProtocol | None) -> bytes | None:
    """Elements of a constant that inference may look at: shapes, axes, scales, not weights."""
    if tensor is None or tensor.dtype is ir.DataType.STRING:
        return None
    most = _KNOWN_VALUE_LIMIT if tensor.dtype in _SHAPE_TYPES else _KNOWN_SCALES_LIMIT
    return np.ascontiguousarray(tensor.numpy()).tobytes() if tensor.size <= most else None


def known(value: ir.Value | None) -> Type:
    """Element type and shape of a tensor, as far as they are known numbers."""
    return UNKNOWN if value is None else describe_value(value).type
