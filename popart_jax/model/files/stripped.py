"""A model message without the data of large initializers, which are read once, into memory that the device may share.

Protobuf would keep every weight in the message, and copy it at each access. Many weights are read by a thread, while
the model is checked and traced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ...buffers import aligned_empty, frozen
from . import wire
from .beside import take_in

LARGE = 1 << 14
"""Bytes from which an initializer is kept outside of the message."""

MANY = 1 << 22
"""Total bytes from which a thread reads the data."""

_KINDS: Mapping[int, np.dtype] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64),
    onnx.TensorProto.INT8: np.dtype(np.int8),
    onnx.TensorProto.UINT8: np.dtype(np.uint8),
    onnx.TensorProto.INT32: np.dtype(np.int32),
    onnx.TensorProto.INT64: np.dtype(np.int64),
}


@dataclass(frozen=True, slots=True)
class StrippedModel:
    """A model message, and the data of large initializers as arrays."""

    proto: onnx.ModelProto  # the model; initializers in `fields` have no data there
    # the field of the TensorProto that the data of each large initializer came from
    fields: Mapping[str, int] = field(default_factory=dict[str, int])
    # whether data came from another file in the model's folder; a copy is then written the same way
    beside: bool = False
    _arrays: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    _reading: Future[None] | None = None

    @property
    def weights(self) -> Mapping[str, np.ndarray]:
        """Data of large initializers, read-only; waits until they are read.

        A file that could not be read to its end raises OSError.
        """
        if self._reading is not None:
            self._reading.result()
        return self._arrays

    def tensors(self) -> dict[str, ir.TensorProtocol]:
        """The large initializers, with known type and shape; access to their data waits until they are read."""
        return {name: self._tensor(name, array) for name, array in self._arrays.items()}

    def _tensor(self, name: str, array: np.ndarray) -> ir.TensorProtocol:
        kind, shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
        return ir.LazyTensor(lambda: ir.Tensor(self.weights[name], name=name), kind, shape, name=name)

    def with_files_beside(self, folder: Path, home: Path) -> StrippedModel:
        """The model with the data that lie in other files of its folder, or by links of the folder in its `home`.

        Raises popart_exception for wrong information, or a file that ends early.
        """
        found = take_in(self.proto, folder, home)
        if not found:
            return self
        fields = {**self.fields, **dict.fromkeys(found, wire.RAW_DATA)}
        self._arrays.update(found)
        return StrippedModel(self.proto, fields, True, self._arrays, self._reading)

    def share(self, held: Mapping[str, np.ndarray], elsewhere: Mapping[str, np.ndarray]) -> None:
        """Replace arrays among `held` by those with the same values in `elsewhere`, so that memory holds them once."""
        self._arrays.update({n: x for n, x in elsewhere.items() if self._arrays.get(n) is held[n]})

    def whole(self) -> onnx.ModelProto:
        """The model as it was read; do not change it."""
        if not self.fields:
            return self.proto
        made = onnx.ModelProto()
        made.CopyFrom(self.proto)
        for tensor in made.graph.initializer:
            if tensor.name in self.fields:
                _put_back(tensor, self.fields[tensor.name], self.weights[tensor.name].tobytes())
        return made


def read_stripped(source: Path | bytes) -> StrippedModel | None:
    """Read a serialised model from a file or memory; None if it is damaged, or `wire.take_apart` can't handle it."""
    data = wire.Data(source)
    try:
        found = wire.take_apart(data, LARGE)
        proto = None if found is None else _parsed(found)
    except BaseException:
        data.close()
        raise
    if found is None or proto is None:
        data.close()
        return None
    arrays: dict[str, np.ndarray] = {}
    fields: dict[str, int] = {}
    waiting: list[tuple[wire.Place, np.ndarray]] = []
    for index, place in found.places.items():
        tensor = proto.graph.initializer[index]
        kind, shape = _kind(tensor, place), tuple(tensor.dims)
        if kind is None or min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != place.size:
            _put_back(tensor, place.field, data.read(place))
            continue
        array = aligned_empty(shape, kind.newbyteorder("<"))
        waiting.append((place, array.reshape(-1).view(np.uint8)))
        arrays[tensor.name], fields[tensor.name] = frozen(array), place.field
    return StrippedModel(proto, fields, _arrays=arrays, _reading=_read(data, waiting))


def stripped_of(found: wire.Apart, data: Mapping[int, np.ndarray]) -> StrippedModel:
    """The model of a message that was taken apart; `data` are by number of the initializer."""
    proto = _parsed(found)
    assert proto is not None  # it was read before
    arrays: dict[str, np.ndarray] = {}
    fields: dict[str, int] = {}
    for index, place in found.places.items():
        tensor, array = proto.graph.initializer[index], data[index]
        if place.size < LARGE or _kind(tensor, place) is None:
            _put_back(tensor, place.field, array.tobytes())
        else:
            arrays[tensor.name], fields[tensor.name] = array, place.field
    return StrippedModel(proto, fields, _arrays=arrays)


def _parsed(found: wire.Apart) -> onnx.ModelProto | None:
    try:
        proto = onnx.load_model_from_string(found.rest)
    except DecodeError:
        return None
    names = [t.name for t in proto.graph.initializer]
    return proto if len(names) == found.initializers and len(set(names)) == len(names) else None


def _read(data: wire.Data, waiting: list[tuple[wire.Place, np.ndarray]]) -> Future[None] | None:
    """Fill the arrays (many by a thread), and close the data."""

    def fill() -> None:
        with closing(data):
            data.read_into(waiting)

    if sum(place.size for place, _ in waiting) < MANY:
        fill()
        return None
    thread = ThreadPoolExecutor(1, "weights")
    reading = thread.submit(fill)
    thread.shutdown(wait=False)
    return reading


def _kind(tensor: onnx.TensorProto, place: wire.Place) -> np.dtype | None:
    if place.field == wire.FLOAT_DATA and tensor.data_type != onnx.TensorProto.FLOAT:
        return None
    return _KINDS.get(tensor.data_type)


def _put_back(tensor: onnx.TensorProto, field: int, data: bytes) -> None:
    tensor.MergeFromString(wire.delimited(field, data))
