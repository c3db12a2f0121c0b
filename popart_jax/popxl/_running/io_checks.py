"""Inputs and outputs of a run: checks of keys, shapes and types, and conversion of host arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...ops.arrays import device_dtype
from ...session.feeding.checks import StreamFact
from .. import dtypes
from ..streams import Stream
from ..utils import to_numpy
from .weights import as_host


def full_shape(shape: Iterable[int], transfers: int, replicas: int) -> tuple[int, ...]:
    """Shape of the host array of a stream: axes of transfers and replicas where there are several."""
    lead = tuple(n for n in (transfers, replicas) if n > 1)
    return (*lead, *shape)


def check_keys(given: Iterable[Any], expected: Iterable[Stream], what: str) -> None:
    """The keys are exactly the expected streams (ValueError)."""
    keys, wanted = list(given), list(expected)
    unexpected = [k for k in keys if k not in wanted]
    missing = [s for s in wanted if s not in keys]
    if unexpected or missing:
        raise ValueError(
            f"Unexpected/Missing {what}.\n  Unexpected: { {str(k) for k in unexpected} or set() }\n"
            f"  Missing: { {str(s) for s in missing} or set() }"
        )


def check_shape(stream: Stream, shape: Any, transfers: int, replicas: int, what: str = "input") -> None:
    """Leading axes of transfers and replicas, then the stream's shape (ValueError).

    Scalar data may have additional axes of length 1.
    """
    rest = list(shape)
    place = f"for the array provided for {what} stream {stream.tensor_id} is"
    if transfers > 1 and rest:
        if rest[0] < transfers:
            raise ValueError(
                f"Dimension 0 ({rest[0]}) {place} not large enough.\n"
                f"It should be at least of size num_host_transfers = {transfers}"
            )
        rest = rest[1:]
    if replicas > 1 and rest:
        if rest[0] != replicas:
            raise ValueError(
                f"Dimension {int(transfers > 1)} ({rest[0]}) {place} the wrong size.\n"
                f"It should be of size replication_factor = {replicas}"
            )
        rest = rest[1:]
    leading = (transfers > 1) + (replicas > 1)
    scalar = all(d == 1 for d in stream.shape) and all(d == 1 for d in rest)
    if len(shape) < leading or not (tuple(rest) == tuple(stream.shape) or scalar):
        expected = full_shape(stream.shape, transfers, replicas)
        raise ValueError(
            f"Shape mismatch for {what} stream {stream.tensor_id}:\nStream shape = {stream.shape}, therefore expected "
            f"full global batch shape {expected}. Got array shape = {tuple(shape)}"
        )


def check_target(stream: Stream, array: Any) -> None:
    """An array that a run may write a stream into (TypeError)."""
    found: Any = getattr(array, "dtype", type(array).__name__)
    kind = stream.dtype.as_numpy()
    fits = isinstance(array, np.ndarray) and np.can_cast(kind, found, "same_kind")
    if not fits or not array.flags.writeable:
        what = "this array is read-only" if fits else f"got {found}"
        raise TypeError(f"{stream}: outputs are written into NumPy arrays of type {kind}; {what}.")


def fill(target: np.ndarray, found: np.ndarray, transfers: int) -> None:
    """Write what a stream sent into an array, which may have room for more transfers."""
    part = target[:transfers] if transfers > 1 else target
    part[...] = found.reshape(part.shape)


@dataclass(frozen=True)
class Port:
    """A stream as a session feeds or reads it, with a fast path for data that need no conversion."""

    stream: Any
    transfers: int
    replicas: int

    @cached_property
    def name(self) -> str:
        """Id of the stream's tensor."""
        return self.stream.tensor_id

    @cached_property
    def host_shape(self) -> tuple[int, ...]:
        """Shape of the host's array."""
        return full_shape(self.stream.shape, self.transfers, self.replicas)

    @cached_property
    def dtype(self) -> np.dtype:
        """Type of the host's array."""
        return self.stream.dtype.as_numpy()

    @cached_property
    def plain(self) -> bool:
        """Whether host and device have the same type."""
        return self.dtype == device_dtype(self.stream.dtype._device)

    @cached_property
    def fact(self) -> StreamFact:
        """Description of the stream for a source of data."""
        device = device_dtype(self.stream.dtype._device)
        return StreamFact(self.name, self.dtype, device, self.host_shape)

    def feed(self, data: Any, downcast: bool) -> np.ndarray:
        """Host data in the form that the program takes."""
        if type(data) is np.ndarray and data.dtype == self.dtype and data.shape == self.host_shape and self.plain:
            return data
        return to_stream(self.stream, data, downcast, self.transfers, self.replicas)

    def read(self, array: np.ndarray) -> np.ndarray:
        """What the program sent, as the host sees it; a fresh array."""
        fresh = np.array(array).reshape(self.host_shape)  # with several processes a single replica has an axis too
        return fresh if self.plain else as_host(fresh, self.stream.dtype)


def to_stream(stream: Stream, data: Any, downcast: bool, transfers: int, replicas: int) -> np.ndarray:
    """Fed data as an array of the stream's host shape, in the device's type; ValueError if they do not fit."""
    array: Any = data if type(data) is np.ndarray else to_numpy(data, downcast=False, copy=False)
    kind = stream.dtype
    if kind._is_float8:
        if array.dtype not in (kind.as_numpy(), np.uint8):
            raise ValueError(f"{stream}: data of type {array.dtype} can't be fed, use {kind.as_numpy()}.")
        array = np.ascontiguousarray(array).view(np.uint8).reshape(array.shape).view(kind._device)
    elif array.dtype != kind.as_numpy():
        array = _narrowed(stream, array, kind, downcast)
    if kind.is_int:
        array = _held(stream, array)
    check_shape(stream, array.shape, transfers, replicas)
    if transfers > 1 and array.shape[0] > transfers:
        array = array[:transfers]
    return array.reshape(full_shape(stream.shape, transfers, replicas))


def _narrowed(stream: Stream, array: np.ndarray, kind: dtypes.dtype, downcast: bool) -> np.ndarray:
    target = kind.as_numpy()
    if np.can_cast(array.dtype, target, "safe") or (
        downcast and array.dtype.newbyteorder("=") == np.float64 and target.kind == "f"
    ):
        return array.astype(target)
    if downcast and array.dtype.kind in "iu" and target.kind in "iuf":
        return _exact(array, target, f"{stream}: the stream's type {kind}")
    raise ValueError(f"{stream}: data of type {array.dtype} do not match the stream's type {kind}.")


def _held(stream: Stream, array: np.ndarray) -> np.ndarray:
    """Whole numbers in the device's type, which has 32 bits where the stream's has 64."""
    held = device_dtype(array.dtype)
    return array if held == array.dtype else _exact(array, held, f"{stream}: the device's type {held}")


def _exact(array: np.ndarray, target: np.dtype, what: str) -> np.ndarray:
    """Whole numbers in another type; ValueError unless it holds them all."""
    cast = array.astype(target)
    if np.array_equal(cast.astype(array.dtype), array) and np.array_equal(cast < 0, array < 0):
        return cast
    raise ValueError(f"{what} does not hold all values of this array of {array.dtype}.")


def make_outputs(streams: Mapping[str, Stream], transfers: int, replicas: int) -> dict[Any, np.ndarray]:
    """Empty arrays for everything that a run sends."""
    return {s: np.zeros(full_shape(s.shape, transfers, replicas), s.dtype.as_numpy()) for s in streams.values()}
