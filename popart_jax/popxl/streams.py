"""Streams between the host and the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ._building.context import get_current_context
from ._building.spec import TensorSpec, checked_shape
from .dtypes import dtype as Dtype

S = TypeVar("S", bound="Stream")


class Stream:
    """A channel for tensors of one shape and type; made by `h2d_stream` and `d2h_stream`.

    Raises
    ------
    NotImplementedError
        On construction.
    """

    _stream_tensor: Any  # the Tensor; an Ir knows its streams, so they do not import what is built on it
    _hash: int
    _default_name = ""

    def __init__(self) -> None:
        raise NotImplementedError("Cannot construct a popxl.Stream directly. Use `h2d_stream` or `d2h_stream`.")

    @classmethod
    def _create(cls: type[S], shape: Iterable[int], dtype: Dtype, name: str | None) -> S:
        owner = get_current_context().ir
        main = owner.main_graph
        self = object.__new__(cls)
        self._stream_tensor = main._stream_tensor(name or cls._default_name, checked_shape(shape), dtype)
        owner._streams[self.tensor_id] = self
        self._hash = hash(self._stream_tensor)
        return self

    @property
    def _ir(self) -> Any:
        return self._stream_tensor.ir

    @property
    def dtype(self) -> Dtype:
        """Element type."""
        return self._stream_tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one transfer on one replica."""
        return self._stream_tensor.shape

    @property
    def spec(self) -> TensorSpec:
        """Shape and type."""
        return self._stream_tensor.spec

    @property
    def tensor_id(self) -> str:
        """Id of the stream's tensor in the main graph."""
        return self._stream_tensor.id

    @property
    def ir(self) -> Any:
        """The Ir that owns the stream."""
        return self._stream_tensor.ir

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Stream) and self._stream_tensor == other._stream_tensor)

    def __str__(self) -> str:
        return f"{type(self).__name__} {self._stream_tensor!r}"

    __repr__ = __str__


class HostToDeviceStream(Stream):
    """Host to device."""

    _default_name = "h2d_stream"

    def __str__(self) -> str:
        return f"HostToDeviceStream {self._stream_tensor!r}"


class DeviceToHostStream(Stream):
    """Device to host."""

    _default_name = "d2h_stream"

    def __str__(self) -> str:
        return f"DeviceToHostStream {self._stream_tensor!r}"


def h2d_stream(shape: Iterable[int], dtype: Dtype, name: str | None = None) -> HostToDeviceStream:
    """A stream from the host to the device, in the main graph of the current Ir.

    Parameters
    ----------
    shape, dtype
        One transfer on one replica.
    name : str, optional
        Name of the stream's tensor; made unique.
    """
    return HostToDeviceStream._create(shape, dtype, name)


def d2h_stream(shape: Iterable[int], dtype: Dtype, name: str | None = None) -> DeviceToHostStream:
    """A stream from the device to the host, in the main graph of the current Ir; arguments as `h2d_stream`."""
    return DeviceToHostStream._create(shape, dtype, name)
