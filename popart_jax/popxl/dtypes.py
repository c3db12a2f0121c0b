"""Element types of PopXL tensors and what they are in NumPy, torch, Python and ONNX."""

from __future__ import annotations

import builtins
import sys
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ._internal.enums import DataType

np_dtype_float8_143 = np.dtype([("float8_143", "u1")])
np_dtype_float8_152 = np.dtype([("float8_152", "u1")])

_STR_TO_POPXL: dict[str, dtype] = {}
_NP_TO_POPXL: dict[np.dtype, dtype] = {}
_TORCH_TO_POPXL: dict[str, dtype] = {}
_PY_TO_POPXL: dict[type, dtype] = {}
_ONNX_TO_POPXL: dict[ir.DataType, dtype] = {}


class dtype:
    """An element type; the instances are singletons, found by name, Python, NumPy or torch type.

    Raises
    ------
    TypeError
        On construction: use the instances, such as `popxl.float32`.
    """

    _name: str
    _is_complex: builtins.bool
    _is_int: builtins.bool
    _is_floating_point: builtins.bool
    _is_signed: builtins.bool
    _np_type: np.dtype
    _pt_type: str | None
    _pb_dtype: DataType
    _onnx: ir.DataType
    _all: ClassVar[list[dtype]] = []

    def __init__(self) -> None:
        raise TypeError("Cannot create popxl.dtypes.dtype instances.")

    @property
    def name(self) -> str:
        """Canonical name, such as ``float16``."""
        return self._name

    @property
    def is_complex(self) -> builtins.bool:
        """Whether values have a real and an imaginary part."""
        return self._is_complex

    @property
    def is_int(self) -> builtins.bool:
        """Whether values are whole numbers (bool is not)."""
        return self._is_int

    @property
    def is_floating_point(self) -> builtins.bool:
        """Whether values are real floating point numbers, float8 included."""
        return self._is_floating_point

    @property
    def is_signed(self) -> builtins.bool:
        """Whether negative values exist."""
        return self._is_signed

    @property
    def _is_float8(self) -> builtins.bool:
        return self._name.startswith("float8")

    @property
    def _device(self) -> np.dtype:
        """The type that arrays of this type have on the device."""
        return self._onnx.numpy()

    @classmethod
    def as_dtype(cls, type_value: Any) -> dtype:
        """The type that a name, a Python, NumPy or torch type, or anything with a `dtype` stands for.

        Raises
        ------
        ValueError
            There is none.
        """
        if isinstance(type_value, DataType):
            return next(t for t in cls._all if t._pb_dtype == type_value)
        if isinstance(type_value, str) and type_value in _STR_TO_POPXL:
            return _STR_TO_POPXL[type_value]
        if isinstance(type_value, type) and type_value in _PY_TO_POPXL:
            return _PY_TO_POPXL[type_value]
        inner = type_value if isinstance(type_value, type) else getattr(type_value, "dtype", type_value)
        if str(inner) in _TORCH_TO_POPXL:
            return _TORCH_TO_POPXL[str(inner)]
        try:
            return _NP_TO_POPXL[np.dtype("V" if inner is None else inner)]  # NumPy reads None as float64
        except (TypeError, KeyError):
            raise ValueError(
                f"There is not a `popxl.dtype` that is compatible with value: {type_value}, type: {type(type_value)}."
            ) from None

    @classmethod
    def _checked(cls, given: Any, parameter: str = "dtype") -> dtype:
        """`given` if it is a type of PopXL, else TypeError with the parameter's name."""
        if isinstance(given, cls):
            return given
        raise TypeError(f"`{parameter}` must be a type of PopXL such as popxl.float32, got {given!r}.")

    @classmethod
    def from_name(cls, name: str) -> dtype:
        """The type of that canonical name.

        Raises
        ------
        ValueError
            Unknown name.
        """
        if name not in _STR_TO_POPXL:
            raise ValueError(f"There is not a `popxl.dtype` that has a name: {name}.")
        return _STR_TO_POPXL[name]

    def as_numpy(self) -> np.dtype:
        """The NumPy type; the float8 types are structured, with one byte field named like the type."""
        return self._np_type

    def as_torch(self) -> Any:
        """The torch type.

        Raises
        ------
        ModuleNotFoundError
            torch is not installed.
        TypeError
            torch has no such type.
        """
        import importlib

        try:
            torch = importlib.import_module("torch")
        except ModuleNotFoundError:
            raise ModuleNotFoundError("PyTorch is not installed.") from None
        if self._pt_type is None:
            raise TypeError(f"`popxl.{self._name}` does not have a corresponding PyTorch dtype.")
        return getattr(torch, self._pt_type)

    @classmethod
    def _from_onnx(cls, kind: ir.DataType | None) -> dtype:
        assert kind is not None
        return _ONNX_TO_POPXL[kind]

    def __repr__(self) -> str:
        return f"popxl.dtypes.{self._name}"

    def __reduce__(self) -> Any:
        return dtype.from_name, (self._name,)

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: Any) -> dtype:
        return self


def _make(name: str, onnx: str, traits: str, numpy: Any, torch: str | None, python: type | None) -> dtype:
    """Enter a type in all tables; `traits` holds the letters i(nt), f(loat), s(igned), c(omplex)."""
    self = object.__new__(dtype)
    self._name, self._np_type, self._pt_type = name, np.dtype(numpy), torch
    self._is_complex, self._is_int = "c" in traits, "i" in traits
    self._is_floating_point, self._is_signed = "f" in traits, "s" in traits
    self._onnx = ir.DataType[onnx]
    self._pb_dtype = DataType[{"FLOAT8E4M3FNUZ": "FLOAT8_143", "FLOAT8E5M2FNUZ": "FLOAT8_152"}.get(onnx, onnx)]
    _STR_TO_POPXL[name] = self
    _NP_TO_POPXL[self._np_type] = self
    _ONNX_TO_POPXL[self._onnx] = self
    if torch is not None:
        _TORCH_TO_POPXL[f"torch.{torch}"] = self
    if python is not None:
        _PY_TO_POPXL[python] = self
    dtype._all.append(self)
    return self


bool = _make("bool", "BOOL", "", "bool", "bool", builtins.bool)
"""Truth values."""
int8 = _make("int8", "INT8", "is", "int8", "int8", None)
"""Signed integers of 8 bits."""
int16 = _make("int16", "INT16", "is", "int16", "int16", None)
"""Signed integers of 16 bits."""
int32 = _make("int32", "INT32", "is", "int32", "int32", None)
"""Signed integers of 32 bits."""
int64 = _make("int64", "INT64", "is", "int64", "int64", None)
"""Signed integers of 64 bits."""
uint8 = _make("uint8", "UINT8", "i", "uint8", "uint8", None)
"""Unsigned integers of 8 bits."""
uint16 = _make("uint16", "UINT16", "i", "uint16", None, None)
"""Unsigned integers of 16 bits."""
uint32 = _make("uint32", "UINT32", "i", "uint32", None, None)
"""Unsigned integers of 32 bits."""
uint64 = _make("uint64", "UINT64", "i", "uint64", None, None)
"""Unsigned integers of 64 bits."""
float8_143 = _make("float8_143", "FLOAT8E4M3FNUZ", "fs", np_dtype_float8_143, None, None)
"""Floats of 8 bits: 4 of exponent, 3 of mantissa."""
float8_152 = _make("float8_152", "FLOAT8E5M2FNUZ", "fs", np_dtype_float8_152, None, None)
"""Floats of 8 bits: 5 of exponent, 2 of mantissa."""
float16 = _make("float16", "FLOAT16", "fs", "float16", "float16", None)
"""Floats of 16 bits, IEEE half precision."""
float32 = _make("float32", "FLOAT", "fs", "float32", "float32", builtins.float)
"""Floats of 32 bits, IEEE single precision."""
float64 = _make("float64", "DOUBLE", "fs", "float64", "float64", None)
"""Floats of 64 bits."""
complex64 = _make("complex64", "COMPLEX64", "sc", "complex64", "complex64", None)
"""Complex numbers of two 32-bit floats."""
complex128 = _make("complex128", "COMPLEX128", "sc", "complex128", "complex128", None)
"""Complex numbers of two 64-bit floats."""
half = float16
"""Another name of `float16`."""
float = float32
"""Another name of `float32`."""
double = float64
"""Another name of `float64`."""


def __getattr__(name: str) -> Any:
    """`_PT_TO_POPXL`, the types by torch type: torch is imported only for a program that asks."""
    if name != "_PT_TO_POPXL":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import torch

    return {getattr(torch, key.removeprefix("torch.")): kind for key, kind in _TORCH_TO_POPXL.items()}


def is_torch(x: Any) -> builtins.bool:
    """Whether `x` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def untorched(x: Any) -> Any:
    """A torch tensor as an array, bfloat16 as float32; anything else as it is."""
    if not is_torch(x):
        return x
    host = x.detach().cpu()
    return (host.float() if str(host.dtype) == "torch.bfloat16" else host).numpy()
