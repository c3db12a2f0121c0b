"""PopART's layout of initializer data in a TensorProto: typed fields, two float16 in one ``int32_data`` entry."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from .dtypes import element_type, host_type
from .files import wire

_FIELDS = {
    "FLOAT": "float_data",
    "INT64": "int64_data",
    "UINT32": "uint64_data",
    "UINT64": "uint64_data",
    "DOUBLE": "double_data",
}
_PACKED: dict[int, int] = {  # bytes of an element
    onnx.TensorProto.FLOAT16: 2,
    onnx.TensorProto.INT8: 1,
    onnx.TensorProto.UINT8: 1,
    onnx.TensorProto.BOOL: 1,
    onnx.TensorProto.INT16: 2,
    onnx.TensorProto.UINT16: 2,
    onnx.TensorProto.UINT32: 4,
}


class StoredTensor(ir.TensorProtoTensor):
    """A tensor that keeps its TensorProto, to be written back into the same field; reading unpacks packed data."""

    def numpy(self) -> np.ndarray:
        """The unpacked data."""
        return read(self.raw)

    def tobytes(self) -> bytes:
        """The unpacked data as bytes, in C order."""
        return np.ascontiguousarray(self.numpy()).tobytes()


def make(name: str, array: np.ndarray) -> StoredTensor:
    """A new tensor in the typed field of its element type; popart_exception for a type that PopART does not take."""
    proto = onnx.TensorProto(name=name, data_type=host_type(array.dtype).onnx.value, dims=array.shape)
    write(proto, array)
    return StoredTensor(proto)


def is_packed(proto: onnx.TensorProto) -> bool:
    """Whether the data are a raw copy of memory, so that an entry of the typed field holds several elements.

    PopART packs float16, 8- and 16-bit integers and bool (``int32_data``), and UINT32 (``uint64_data``).
    """
    field, wide = ("uint64_data", 8) if proto.data_type == onnx.TensorProto.UINT32 else ("int32_data", 4)
    size = _PACKED.get(proto.data_type)
    entries, count = len(getattr(proto, field)), math.prod(proto.dims)
    return size is not None and entries > 0 and entries == -(-count * size // wide) and (entries != count or count == 1)


def read(proto: onnx.TensorProto) -> np.ndarray:
    """Values of a TensorProto with data inside, packed ones included."""
    if not is_packed(proto):
        return onnx.numpy_helper.to_array(proto)
    wide = proto.data_type == onnx.TensorProto.UINT32
    memory = np.asarray(proto.uint64_data, np.uint64) if wide else np.asarray(proto.int32_data, np.int32)
    kind = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
    return memory.view(kind)[: math.prod(proto.dims)].reshape(tuple(proto.dims))


def write(proto: onnx.TensorProto, array: np.ndarray) -> None:
    """Replace the data: in ``raw_data`` if they are there now, else in the typed field."""
    values = np.ascontiguousarray(array).ravel()
    raw = proto.HasField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "raw_data"):
        proto.ClearField(field)
    kind = element_type(ir.DataType(proto.data_type))
    if raw or kind.name in ("BFLOAT16", "FLOAT8_143", "FLOAT8_152"):
        proto.raw_data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    elif kind.name == "FLOAT":  # a packed field's wire format is the raw bytes: far faster than `extend`
        data = values.astype("<f4").tobytes()
        proto.MergeFromString(wire.delimited(onnx.TensorProto.FLOAT_DATA_FIELD_NUMBER, data))
    elif kind.name == "FLOAT16":
        padded = np.zeros((values.size + 1) // 2 * 2, np.float16)
        padded[: values.size] = values
        proto.int32_data.extend(padded.view(np.int32).tolist())
    else:
        numbers = values.astype(np.int32) if kind.name == "BOOL" else values
        getattr(proto, _FIELDS.get(kind.name, "int32_data")).extend(numbers.tolist())
