"""Initializers of a model file: whether what they say about themselves agrees with the data they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
import onnx_ir as ir

from ..errors import popart_exception
from .external import held_tensors, is_external
from .tensors import is_packed

_FIELDS = ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "string_data")
_FIELD_OF: dict[int, str] = {  # of all others: int32_data
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.COMPLEX64: "float_data",
    onnx.TensorProto.DOUBLE: "double_data",
    onnx.TensorProto.COMPLEX128: "double_data",
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.UINT32: "uint64_data",
    onnx.TensorProto.UINT64: "uint64_data",
    onnx.TensorProto.STRING: "string_data",
}
_PAIRED = {onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128}


def check_tensors(model: ir.Model) -> None:
    """`check_initializers` for every tensor inside a loaded model.

    Raises
    ------
    popart_exception
        The first whose data do not fit to its shape and type.
    """
    check_initializers(t.raw for t in held_tensors(model) if isinstance(t, ir.TensorProtoTensor))


def check_initializers(tensors: Iterable[onnx.TensorProto]) -> None:
    """Refuse initializers with negative dimensions, an unknown type, data of another type, or too few or too many.

    Raises
    ------
    popart_exception
        The first such initializer, what its shape asks for and what is there.
    """
    known = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
    for tensor in tensors:
        dims = list(tensor.dims)
        if tensor.data_type not in known:
            raise popart_exception(f"Initializer '{tensor.name}' has the unknown data type {tensor.data_type}.")
        if any(d < 0 for d in dims):
            raise popart_exception(f"Initializer '{tensor.name}' has the invalid shape {dims}.")
        _check_field(tensor)
        held = _held(tensor)
        if held is not None and held != math.prod(dims):
            raise popart_exception(
                f"Initializer '{tensor.name}' of shape {dims} needs {math.prod(dims)} elements, but holds {held:g}."
            )


def _check_field(tensor: onnx.TensorProto) -> None:
    wanted = _FIELD_OF.get(tensor.data_type, "int32_data")
    used = [field for field in _FIELDS if field != wanted and len(getattr(tensor, field))]
    if used:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        raise popart_exception(
            f"Initializer '{tensor.name}' of type {kind} has data in {used[0]}; those of its type stand in {wanted} or "
            "raw_data."
        )


def _held(tensor: onnx.TensorProto) -> float | None:
    """Elements in the data fields; None where that depends on the packing of a type, or data are elsewhere."""
    if is_external(tensor) or is_packed(tensor):
        return None
    if tensor.HasField("raw_data"):
        if tensor.data_type in _SIZES:
            return len(tensor.raw_data) / _SIZES[tensor.data_type]
        return None
    entries = sum(len(getattr(tensor, field)) for field in _FIELDS)
    if tensor.data_type in _PAIRED:
        return entries // 2
    return entries if entries == 0 or tensor.data_type in _SIZES else None


_SIZES: dict[int, int] = {
    onnx.TensorProto.FLOAT: 4,
    onnx.TensorProto.FLOAT16: 2,
    onnx.TensorProto.BFLOAT16: 2,
    onnx.TensorProto.DOUBLE: 8,
    onnx.TensorProto.INT8: 1,
    onnx.TensorProto.UINT8: 1,
    onnx.TensorProto.BOOL: 1,
    onnx.TensorProto.INT16: 2,
    onnx.TensorProto.UINT16: 2,
    onnx.TensorProto.INT32: 4,
    onnx.TensorProto.UINT32: 4,
    onnx.TensorProto.INT64: 8,
    onnx.TensorProto.UINT64: 8,
}
