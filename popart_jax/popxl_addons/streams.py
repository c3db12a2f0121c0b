"""Streams by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from .. import popxl
from ..popxl.streams import DeviceToHostStream, HostToDeviceStream, Stream

StreamType = TypeVar("StreamType", bound=Stream)


class _StreamsBase(Generic[StreamType]):
    """Ordered mapping of names to streams; attribute, name, position and slice reach them.

    Parameters
    ----------
    **spec
        ``name=(shape, dtype)`` for each stream to make.

    Raises
    ------
    AttributeError, KeyError
        There is no stream of that name; the message lists the names.
    """

    stream_init: ClassVar[Callable[..., Any]]
    _streams: dict[str, Any]

    def __init__(self, **spec: tuple[Iterable[int], Any]) -> None:
        made = {name: type(self).stream_init(tuple(shape), dtype, name) for name, (shape, dtype) in spec.items()}
        self.__dict__["_streams"] = made

    @classmethod
    def from_streams(cls, streams: Iterable[StreamType]) -> Any:
        """Existing streams, under the ids of their stream tensors."""
        self = cls()
        self._streams.update((s.tensor_id, s) for s in streams)
        return self

    def __getattr__(self, name: str) -> StreamType:
        streams = self.__dict__.get("_streams", {})
        if name not in streams:
            raise AttributeError(f"No attribute '{name}'. Available Keys: {list(streams)}")
        return streams[name]

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, (int, slice)):
            return list(self._streams.values())[key]
        if key not in self._streams:
            raise KeyError(f"No key '{key}'. Available Keys: {list(self._streams)}")
        return self._streams[key]

    def __iter__(self) -> Iterator[StreamType]:
        return iter(self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, name: object) -> bool:
        return name in self._streams

    def keys(self):
        """Names in order."""
        return self._streams.keys()

    def values(self):
        """Streams in order."""
        return self._streams.values()

    def items(self):
        """(name, stream) pairs in order."""
        return self._streams.items()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._streams.items())})"


class InputStreams(_StreamsBase[HostToDeviceStream]):
    """Host-to-device streams by name."""

    stream_init = staticmethod(popxl.h2d_stream)


class OutputStreams(_StreamsBase[DeviceToHostStream]):
    """Device-to-host streams by name."""

    stream_init = staticmethod(popxl.d2h_stream)
