"""The element types: PopART's name, ONNX number, NumPy type and lower-case name, in one table."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ..enums import DataType
from ..errors import noted, popart_exception


@dataclass(frozen=True, slots=True)
class ElementType:
    """One row: `numpy` is None where NumPy has no counterpart PopART accepts; `size` in bytes."""

    data_type: DataType
    onnx: ir.DataType
    lower: str
    size: int
    numpy: np.dtype | None

    @property
    def name(self) -> str:
        """PopART's upper-case name, such as ``FLOAT16``."""
        return self.data_type.name


def _row(name: str, onnx: str, lower: str, size: int, numpy: object | None) -> ElementType:
    kind = None if numpy is None else np.dtype(numpy)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return ElementType(DataType[name], ir.DataType[onnx], lower, size, kind)


TABLE = (
    _row("UINT8", "UINT8", "uint8", 1, np.uint8),
    _row("INT8", "INT8", "int8", 1, np.int8),
    _row("UINT16", "UINT16", "uint16", 2, np.uint16),
    _row("INT16", "INT16", "int16", 2, np.int16),
    _row("INT32", "INT32", "int32", 4, np.int32),
    _row("INT64", "INT64", "int64", 8, np.int64),
    _row("UINT32", "UINT32", "uint32", 4, np.uint32),
    _row("UINT64", "UINT64", "uint64", 8, np.uint64),
    _row("BOOL", "BOOL", "bool", 1, np.bool_),
    _row("FLOAT", "FLOAT", "float32", 4, np.float32),
    _row("FLOAT16", "FLOAT16", "float16", 2, np.float16),
    _row("BFLOAT16", "BFLOAT16", "bfloat16", 2, ml_dtypes.bfloat16),
    _row("FLOAT8_143", "FLOAT8E4M3FNUZ", "float8_143", 1, ml_dtypes.float8_e4m3fnuz),
    _row("FLOAT8_152", "FLOAT8E5M2FNUZ", "float8_152", 1, ml_dtypes.float8_e5m2fnuz),
    _row("DOUBLE", "DOUBLE", "float64", 8, np.float64),
    _row("COMPLEX64", "COMPLEX64", "complex64", 8, np.complex64),
    _row("COMPLEX128", "COMPLEX128", "complex128", 16, np.complex128),
    _row("STRING", "STRING", "string", 0, np.object_),
    _row("UNDEFINED", "UNDEFINED", "undefined", 0, None),
)

BY_DATA_TYPE = {row.data_type: row for row in TABLE}
BY_NAME = {row.name: row for row in TABLE}
BY_ONNX = {row.onnx: row for row in TABLE}
BY_NUMPY = {row.numpy: row for row in TABLE if row.numpy is not None}
_HOST = {"float16", "float32", "bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))}
_HOST_TYPES = frozenset(map(np.dtype, _HOST))


def element_type(kind: DataType | str | ir.DataType) -> ElementType:
    """Row of a PopART enum value, a PopART type name (any case) or an ONNX type; popart_exception for other names."""
    if isinstance(kind, DataType):
        return BY_DATA_TYPE[kind]
    if isinstance(kind, ir.DataType):
        return BY_ONNX.get(kind, BY_NAME["UNDEFINED"])
    row = BY_NAME.get(kind) or BY_NAME.get(kind.upper()) or next((r for r in TABLE if r.lower == kind), None)
    if row is None:
        raise popart_exception(f"no ONNX type {kind}, they're [{' '.join(BY_NAME)}]")
    return row


def is_host_type(dtype: np.dtype) -> bool:
    """Whether the runtime takes arrays of this NumPy type; of another byte order it is another type."""
    return np.dtype(dtype) in _HOST_TYPES


def host_type(dtype: np.dtype) -> ElementType:
    """Row of a NumPy type that may be handed to the runtime; popart_exception for others, such as float64."""
    if not is_host_type(dtype):
        raise no_host_type(dtype)
    return BY_NUMPY[np.dtype(dtype)]


def no_host_type(dtype: np.dtype) -> popart_exception:
    """The error for an array of a type that PopART does not take."""
    error = popart_exception(f"No numpy type {np.dtype(dtype)} registered in map to DataType")
    return noted(error, f"There are {', '.join(sorted(_HOST))}; convert the array with astype.")
