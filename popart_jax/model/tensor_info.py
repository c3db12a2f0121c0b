"""`TensorInfo`: element type and shape of a tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, cast, overload

import numpy as np

from .._calls import overloaded
from ..enums import DataType
from ..errors import logs_errors, noted, popart_exception
from .dtypes import BY_NUMPY, element_type, host_type


class _TensorInfoCore:
    """Element type, shape, and for shards the shape of the whole tensor.

    Raises
    ------
    popart_exception
        Unknown type name, or a shape text that is not like ``(2,3)``.
    """

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, dataType: DataType, shape: list[int]) -> None: ...
    @overload
    def __init__(self, dataType: DataType, shape: list[int], metaShape: list[int]) -> None: ...
    @overload
    def __init__(self, dataType: str, shape: str) -> None: ...
    @overload
    def __init__(self, dataType: str, shape: list[int]) -> None: ...
    @overloaded
    def __init__(self, dataType: Any = DataType.UNDEFINED, shape: Any = (), metaShape: Any = ()) -> None:
        self._assign(dataType, shape, metaShape)

    def _assign(self, kind: DataType | str, shape: Sequence[int] | str, meta: Sequence[int] = ()) -> None:
        self._type = element_type(kind)
        self._shape = _parse_shape(shape) if isinstance(shape, str) else tuple(shape)
        self._meta = tuple(meta)

    @overload
    def set(self, dataType: DataType) -> None: ...
    @overload
    def set(self, dataType: DataType, shape: list[int]) -> None: ...
    @overload
    def set(self, dataType: DataType, shape: list[int], metaShape: list[int]) -> None: ...
    @overload  # listed in the API although the one before covers it
    def set(  # pyright: ignore[reportOverlappingOverload]
        self, dataType: DataType, shape: list[int], metaShape: list[int], /
    ) -> None: ...
    @overloaded
    def set(self, dataType: Any = None, shape: Any = None, metaShape: Any = None) -> None:
        """Change type, shape and meta shape."""
        self._assign(dataType, self._shape if shape is None else shape, self._meta if metaShape is None else metaShape)

    def shape(self) -> list[int]:
        """Sizes of the dimensions."""
        return list(self._shape)

    def metaShape(self) -> list[int]:
        """Shape of the whole tensor if this is a shard of it, else empty."""
        return list(self._meta)

    def rank(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    def nelms(self) -> int:
        """Number of elements; 1 for rank 0."""
        return math.prod(self._shape)

    def nbytes(self) -> int:
        """Size [bytes]."""
        return self.nelms() * self._type.size

    def dim(self, i: int) -> int:
        """Size of dimension `i`.

        Raises
        ------
        popart_exception
            There is no such dimension.
        """
        if not 0 <= i < len(self._shape):
            raise popart_exception(f"Invalid input dimension {i}, tensor of rank {len(self._shape)}")
        return self._shape[i]

    def strides(self, shape: Sequence[int] | None = None) -> list[int]:
        """Strides of a C-ordered array [elements], for `shape` or the tensor's own."""
        sizes = self._shape if shape is None else tuple(shape)
        return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]

    def dataType(self) -> DataType:
        """The element type."""
        return self._type.data_type

    def data_type(self) -> str:
        """PopART's name of the element type, such as ``FLOAT``."""
        return self._type.name

    def data_type_lcase(self) -> str:
        """NumPy's name of the element type, such as ``float32``."""
        return self._type.lower

    def numpy_dtype(self) -> np.dtype:
        """The element type for NumPy (an addition of this package)."""
        if self._type.numpy is None:
            raise popart_exception(f"{self._type.name} has no NumPy counterpart.")
        return self._type.numpy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _TensorInfoCore):
            return NotImplemented
        return (self._type, self._shape) == (other._type, other._shape)

    def __hash__(self) -> int:
        return hash((self._type.name, self._shape))

    def __repr__(self) -> str:
        return f"{self.data_type()}{list(self._shape)}"


def _parse_shape(text: str) -> tuple[int, ...]:
    """A shape written like ``(2,3)``."""
    inner = re.fullmatch(r"\(((?:\d+(?:,\d+)*,?)?)\)", text.replace(" ", ""))
    if inner is None:
        raise noted(popart_exception("invalid string for shape"), f"got '{text}'; a shape is written like (2,3)")
    if " " in text:
        raise popart_exception("s contains a space : not valid shape string")
    return tuple(int(n) for n in inner[1].split(",") if n)


class TensorInfo(_TensorInfoCore):
    """Element type and shape, from ``(type, shape)`` or from an array.

    Parameters
    ----------
    *args
        A NumPy dtype, NumPy scalar type or PopART type name, and a shape; or one array.

    Raises
    ------
    TypeError
        Not one array and not two arguments.
    KeyError
        A NumPy type without PopART counterpart.
    """

    def __init__(self, *args: Any) -> None:
        if len(args) == 1 and isinstance(args[0], np.ndarray):
            array = cast("np.ndarray", args[0])
            super().__init__(_get_popart_type(array.dtype), list(array.shape))
            return
        if len(args) != 2:
            raise noted(TypeError(f"Can not create TensorInfo with args {args}"), "Give an array, or type and shape.")
        kind, shape = args
        if not isinstance(kind, (str, DataType)):
            kind = _get_popart_type(np.dtype(kind))
        super().__init__(kind, shape)


def _get_popart_type(dtype: np.dtype) -> str:
    """PopART's name of a NumPy type; KeyError if there is none."""
    row = BY_NUMPY[np.dtype(dtype)]
    if row.numpy is not None and row.numpy.kind in "cO":
        raise KeyError(np.dtype(dtype))
    return row.name


def info_of(name: str, dtype: np.dtype, shape: Sequence[int]) -> _TensorInfoCore:
    """PopART's tensor info of a type and shape; popart_exception where PopART has no name for the type."""
    if dtype not in BY_NUMPY:
        raise popart_exception(
            f"Tensor '{name}' is {dtype}, which popart.DataType has no name for.\n"
            "  fix: anchor a Cast of it to a type that it has."
        )
    return _TensorInfoCore(BY_NUMPY[dtype].data_type, list(shape))


@logs_errors
def getTensorInfo(npArr: np.ndarray, /) -> _TensorInfoCore:
    """Tensor info of an array.

    Raises
    ------
    popart_exception
        The runtime takes no arrays of this type (float64, complex ...).
    """
    if not isinstance(npArr, np.ndarray):
        raise TypeError(f"getTensorInfo takes a numpy.ndarray, got {type(npArr).__name__}.")
    return _TensorInfoCore(host_type(npArr.dtype).data_type, list(npArr.shape))
