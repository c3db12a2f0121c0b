"""Initializer data as PopART lays them out in a TensorProto: typed fields, two halves in one ``int32_data`` entry."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from .dtypes import element_type, host_type

_FIELDS = {
    "FLOAT": "float_data",
    "INT64": "int64_data",
    "UINT32": "uint64_data",
    "UINT64": "uint64_data",
    "DOUBLE": "double_data",
}
_FLOAT_FIELD_TAG = b"\x22"  # field 4, length-delimited


class StoredTensor(ir.TensorProtoTensor):
    """A tensor kept as its TensorProto, so that it is written back in the field it came from; halves are unpacked."""

    def numpy(self) -> np.ndarray:
        return read(self.raw)

    def tobytes(self) -> bytes:
        return np.ascontiguousarray(self.numpy()).tobytes()


def make(name: str, array: np.ndarray) -> StoredTensor:
    """A new tensor in the typed field of its element type.

    Raises
    ------
    popart_exception
        PopART takes no arrays of this type.
    """
    proto = onnx.TensorProto(name=name, data_type=host_type(array.dtype).onnx.value, dims=array.shape)
    write(proto, array)
    return StoredTensor(proto)


def is_packed_half(proto: onnx.TensorProto) -> bool:
    """Whether halves stand two in one ``int32_data`` entry."""
    if proto.data_type != onnx.TensorProto.FLOAT16 or not proto.int32_data:
        return False
    count = math.prod(proto.dims)
    return len(proto.int32_data) == (count + 1) // 2


def read(proto: onnx.TensorProto) -> np.ndarray:
    """Values of a TensorProto with data inside, packed halves included."""
    if is_packed_half(proto):
        halves = np.asarray(proto.int32_data, np.int32).view(np.float16)
        return halves[: math.prod(proto.dims)].reshape(tuple(proto.dims))
    return onnx.numpy_helper.to_array(proto)


def write(proto: onnx.TensorProto, array: np.ndarray) -> None:
    """Replace the data: in ``raw_data`` if they are there now, else in the typed field."""
    values = np.ascontiguousarray(array).ravel()
    raw = proto.HasField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "raw_data"):
        proto.ClearField(field)
    kind = element_type(ir.DataType(proto.data_type))
    if raw or kind.name in ("BFLOAT16", "FLOAT8_143", "FLOAT8_152"):
        proto.raw_data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    elif kind.name == "FLOAT":  # the wire form of a packed field is its bytes: far faster than `extend`
        data = values.astype("<f4").tobytes()
        proto.MergeFromString(_FLOAT_FIELD_TAG + _varint(len(data)) + data)
    elif kind.name == "FLOAT16":
        padded = np.zeros((values.size + 1) // 2 * 2, np.float16)
        padded[: values.size] = values
        proto.int32_data.extend(padded.view(np.int32).tolist())
    else:
        numbers = values.astype(np.int32) if kind.name == "BOOL" else values
        getattr(proto, _FIELDS.get(kind.name, "int32_data")).extend(numbers.tolist())


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)
