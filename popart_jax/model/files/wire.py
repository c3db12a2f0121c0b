"""Parses the wire format of a ModelProto: finds the data of large initializers, and the message without them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_GRAPH, _INITIALIZER = 7, 5
FLOAT_DATA, RAW_DATA = 4, 9
_OTHER_DATA = {3, 5, 6, 7, 10, 11, 13, 14}  # segments, other typed fields, external data
_FLOAT = 4  # bytes of a number
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GAP, _RUN, _PIECES = 1 << 16, 1 << 30, 500  # Linux reads up to 2 GiB into up to 1024 pieces at once


@dataclass(frozen=True, slots=True)
class Place:
    """A range of bytes, and the field whose contents they are."""

    start: int
    end: int
    field: int = 0

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Apart:
    """A message taken apart."""

    rest: bytes  # the message without the data
    places: dict[int, Place]  # positions of initializers' data, by number of the initializer
    initializers: int  # how many initializers there are


class Data:
    """A serialised message in memory or in a file, which is read lazily; close it afterwards."""

    def __init__(self, source: Path | bytes) -> None:
        self._file: BinaryIO | None = None
        self.view: bytes | mmap.mmap = b""
        if isinstance(source, bytes):
            self.view = source
        elif source.stat().st_size:
            self._file = open(source, "rb")  # noqa: SIM115 - `close` does it
            self.view = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def read(self, place: Place) -> bytes:
        """Some bytes."""
        return self.view[place.start : place.end]

    def read_into(self, targets: Sequence[tuple[Place, np.ndarray]]) -> None:
        """Read places in rising order, each into an array of the same size; other threads run meanwhile."""
        if self._file is None:
            for place, target in targets:
                np.copyto(target, np.frombuffer(self.view, np.uint8, place.size, place.start))
            return
        if isinstance(self.view, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.view.madvise(mmap.MADV_DONTNEED)  # mapped pages would count as memory besides the arrays
        for run in _runs(targets):
            self._read_run(run)

    def _read_run(self, run: Sequence[tuple[Place, np.ndarray]]) -> None:
        """Read a run, in one call if possible: each call must acquire the GIL again."""
        assert self._file is not None
        begin = run[0][0].start
        pieces: list[Any] = []  # buffers to read into
        for place, target in run:
            pieces += [bytearray(place.start - begin), target]
            begin = place.end
        whole = begin - run[0][0].start
        if hasattr(os, "preadv") and os.preadv(self._file.fileno(), pieces, run[0][0].start) == whole:
            return
        for place, target in run:
            self._file.seek(place.start)
            if self._file.readinto(target) != place.size:  # pyright: ignore[reportAttributeAccessIssue]
                raise OSError("The model's file became shorter while it was read.")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None and isinstance(self.view, mmap.mmap):
            self.view.close()
            self._file.close()


def _runs(targets: Sequence[tuple[Place, np.ndarray]]) -> Iterator[list[tuple[Place, np.ndarray]]]:
    """Neighbouring places that one system call can read, together with the gaps between them."""
    run: list[tuple[Place, np.ndarray]] = []
    for place, target in targets:
        if run and (place.start - run[-1][0].end > _GAP or place.end - run[0][0].start > _RUN or len(run) == _PIECES):
            yield run
            run = []
        run.append((place, target))
    if run:
        yield run


def take_apart(data: Data, large: int) -> Apart | None:
    """Take data of at least `large` bytes, in ``raw_data`` or ``float_data``, out of the main graph's initializers.

    None for bytes that are no message, or one with several graphs, which protobuf would merge.
    """
    try:
        return _model(data.view, large)
    except (IndexError, ValueError):
        return None


def _model(view: bytes | mmap.mmap, large: int) -> Apart | None:
    pieces: list[bytes] = []
    graphs: list[Apart] = []
    for field, place, value in _fields(view, Place(0, len(view))):
        if field == _GRAPH:
            if value is None:
                return None
            graphs.append(_graph(view, value, large))
            pieces.append(delimited(_GRAPH, graphs[-1].rest))
        else:
            pieces.append(view[place.start : place.end])
    return Apart(b"".join(pieces), graphs[0].places, graphs[0].initializers) if len(graphs) == 1 else None


def _graph(view: bytes | mmap.mmap, graph: Place, large: int) -> Apart:
    pieces: list[bytes] = []
    places: dict[int, Place] = {}
    count, kept = 0, graph.start
    for field, place, value in _fields(view, graph):
        if field != _INITIALIZER or value is None:
            continue
        raw = _data(view, value, large) if value.size >= large else None
        if raw is not None:
            whole, places[count] = raw
            rest = view[value.start : whole.start] + view[whole.end : value.end]
            pieces += [view[kept : place.start], delimited(_INITIALIZER, rest)]
            kept = place.end
        count += 1
    return Apart(b"".join([*pieces, view[kept : graph.end]]), places, count)


def _data(view: bytes | mmap.mmap, tensor: Place, large: int) -> tuple[Place, Place] | None:
    """The field and the data in it, if the tensor has its data in one contiguous field."""
    found: list[tuple[Place, Place]] = []
    for field, place, value in _fields(view, tensor):
        if field in _OTHER_DATA:
            return None
        if field in (FLOAT_DATA, RAW_DATA):
            if value is None or found or (field == FLOAT_DATA and value.size % _FLOAT):
                return None
            found.append((place, Place(value.start, value.end, field)))
    return found[0] if found and found[0][1].size >= large else None


def _fields(view: bytes | mmap.mmap, message: Place) -> Iterator[tuple[int, Place, Place | None]]:
    """Number and place of each field of a message, and of the bytes in it if it holds any."""
    at = message.start
    while at < message.end:
        start = at
        tag, at = _number(view, at)
        kind, value = tag & 7, None
        if kind == _BYTES:
            size, at = _number(view, at)
            value = Place(at, at + size)
            at += size
        elif kind == _VARINT:
            _, at = _number(view, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(kind)
        if at > message.end:
            raise ValueError(at)
        yield tag >> 3, Place(start, at), value


def _number(view: bytes | mmap.mmap, at: int) -> tuple[int, int]:
    """A varint, and the position behind it."""
    byte = view[at]
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        at += 1
        if shift > 63:
            raise ValueError(at)
        byte = view[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1


def delimited(field: int, contents: bytes) -> bytes:
    """The wire form of a field that holds bytes."""
    return bytes([field << 3 | _BYTES]) + _varint(len(contents)) + contents


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)
