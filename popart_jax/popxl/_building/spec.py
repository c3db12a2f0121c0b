"""Shape, element type and meta shape of a tensor that need not exist."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..dtypes import dtype as Dtype


def checked_shape(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape as a tuple; TypeError unless it is a sequence of whole numbers, ValueError where a size is negative."""
    try:
        sizes = tuple(operator.index(d) for d in shape)
    except TypeError:
        raise TypeError(f"A shape is a tuple of whole numbers such as (2, 3), got {shape!r}.") from None
    if any(d < 0 for d in sizes):
        raise ValueError(f"The sizes of a shape can't be negative, got {sizes}.")
    return sizes


def whole_number(name: str, value: Any) -> int:
    """The value as an int; TypeError with the parameter's name unless it is a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a whole number, got {value!r}.") from None


def whole_numbers(name: str, values: Iterable[Any]) -> list[int]:
    """The values as ints; TypeError with the parameter's name unless all are whole numbers."""
    return [whole_number(name, v) for v in values]


class TensorSpec(Mapping[str, Any]):
    """Description of a tensor; usable as keyword arguments, as in ``popxl.graph_input(**spec)``.

    Parameters
    ----------
    shape : tuple of int
        Shape.
    dtype : popxl.dtype
        Element type.
    meta_shape : tuple of int
        Shape of the whole tensor when this is one shard of it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Dtype, meta_shape: tuple[int, ...] = ()) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.meta_shape = tuple(meta_shape)

    def to_dict(self) -> dict[str, Any]:
        """The three fields by name."""
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[tuple[int, ...], Dtype, tuple[int, ...]]:
        """Shape, type, meta shape."""
        return self.shape, self.dtype, self.meta_shape

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __hash__(self) -> int:
        return hash(self.to_tuple())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and self.to_tuple() == other.to_tuple()

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}, meta_shape={self.meta_shape})"
