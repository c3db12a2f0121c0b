"""Checks that shapes and types of a model file's initializers agree with their data."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
import onnx_ir as ir

from ...errors import popart_exception
from ..files.external import held_tensors, is_external
from ..tensors import is_packed

_FIELDS = ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "string_data")
_FIELD_OF: dict[int, str] = {  # all other types: int32_data
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
    """`check_initializers` for every tensor inside a loaded model."""
    for what, tensor in held_tensors(model):
        if isinstance(tensor, ir.TensorProtoTensor):
            _check(what, tensor.raw)
        elif isinstance(tensor, ir.StringTensor):
            count, wanted = len(tensor.string_data()), math.prod(tensor.shape.numpy())
            if count != wanted:
                raise popart_exception(f"{what} needs {wanted} elements in string_data, but holds {count}.")


def check_initializers(tensors: Iterable[onnx.TensorProto]) -> None:
    """Raise popart_exception for the first initializer whose data do not fit to its shape and type.

    That is one with negative dimensions, an unknown type, data of another type, or too few or too many.
    """
    for tensor in tensors:
        _check(f"Initializer '{tensor.name}'", tensor)


_KNOWN = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_MOST_DIMS = 64
"""Largest rank of arrays, since NumPy 2."""
_MOST = 1 << 62
"""Bytes beyond which NumPy makes no array, even an empty one."""


def _check(what: str, tensor: onnx.TensorProto) -> None:
    dims = list(tensor.dims)
    if tensor.data_type not in _KNOWN:
        raise popart_exception(f"{what} has the unknown data type {tensor.data_type}.")
    if len(dims) > _MOST_DIMS:
        raise popart_exception(f"{what} has {len(dims)} dimensions; arrays have at most {_MOST_DIMS}.")
    if any(d < 0 for d in dims) or math.prod(d for d in dims if d) * _LARGEST > _MOST:
        raise popart_exception(f"{what} has the invalid shape {dims}.")
    _check_field(what, tensor)
    held = _element_count(tensor)
    if held is not None and held != math.prod(dims):
        raise popart_exception(f"{what} of shape {dims} needs {math.prod(dims)} elements, but holds {held:g}.")


_LARGEST = 16  # bytes of an element


def _check_field(what: str, tensor: onnx.TensorProto) -> None:
    kind, wanted = onnx.TensorProto.DataType.Name(tensor.data_type), _FIELD_OF.get(tensor.data_type, "int32_data")
    used = [field for field in _FIELDS if len(getattr(tensor, field))]
    wrong = [field for field in used if field != wanted]
    raw = tensor.HasField("raw_data")
    if wrong:
        raise popart_exception(
            f"{what} of type {kind} has data in {wrong[0]}; those of its type stand in {wanted} or raw_data."
        )
    if raw and (used or tensor.data_type == onnx.TensorProto.STRING):
        expected = "one of them" if used else "them in string_data"
        raise popart_exception(
            f"{what} of type {kind} has data in raw_data{f' and in {wanted}' if used else ''}; expected {expected}."
        )


def _element_count(tensor: onnx.TensorProto) -> float | None:
    """Number of elements in the data fields; None if that depends on the type's packing, or data are external."""
    if is_external(tensor) or is_packed(tensor):
        return None
    if tensor.HasField("raw_data"):
        bits, count = ir.DataType(tensor.data_type).bitwidth, math.prod(tensor.dims)
        there = 8 * len(tensor.raw_data) / bits
        return count if bits < _BYTE and len(tensor.raw_data) == -(-count * bits // _BYTE) else there
    entries = sum(len(getattr(tensor, field)) for field in _FIELDS)
    if tensor.data_type in _PAIRED:
        return entries / 2
    packs = tensor.data_type != onnx.TensorProto.STRING and ir.DataType(tensor.data_type).bitwidth < _BYTE
    return None if packs and entries else entries


_BYTE = 8
