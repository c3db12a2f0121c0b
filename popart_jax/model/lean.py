"""A serialised model with its large initializers beside it: read once, into memory that the device may share.

Protobuf would hold every weight in the message, and copy it out of there each time it is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ..buffers import aligned_empty, frozen
from . import wire

LARGE = 1 << 14
"""Bytes from which data stand beside the message."""

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
class LeanModel:
    """A model.

    Attributes
    ----------
    proto : onnx.ModelProto
        The model; initializers in `weights` have no data there.
    weights : mapping of str to array
        Data of large initializers, read-only.
    fields : mapping of str to int
        The field of the TensorProto that each of these came from.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)

    def whole(self) -> onnx.ModelProto:
        """The model as it was read; do not change it."""
        if not self.weights:
            return self.proto
        made = onnx.ModelProto()
        made.CopyFrom(self.proto)
        for tensor in made.graph.initializer:
            if tensor.name in self.weights:
                _put_back(tensor, self.fields[tensor.name], self.weights[tensor.name].tobytes())
        return made


def read_lean(source: Path | bytes) -> LeanModel | None:
    """Read a serialised model from a file or memory; None if it is damaged, or too unusual to be taken apart."""
    with wire.opened(source) as data:
        found = wire.take_apart(data, LARGE)
        if found is None:
            return None
        try:
            proto = onnx.load_model_from_string(found.rest)
        except DecodeError:
            return None
        names = [t.name for t in proto.graph.initializer]
        if len(names) != found.initializers or len(set(names)) != len(names):
            return None
        weights, fields = {}, {}
        for index, place in found.places.items():
            tensor = proto.graph.initializer[index]
            kind, shape = _kind(tensor, place), tuple(tensor.dims)
            if kind is None or min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != place.size:
                _put_back(tensor, place.field, data.read(place))
                continue
            array = aligned_empty(shape, kind.newbyteorder("<"))
            data.read_into(place, array)
            weights[tensor.name], fields[tensor.name] = frozen(array.astype(kind, copy=False)), place.field
    return LeanModel(proto, weights, fields)


def _kind(tensor: onnx.TensorProto, place: wire.Place) -> np.dtype | None:
    if place.field == wire.FLOAT_DATA and tensor.data_type != onnx.TensorProto.FLOAT:
        return None
    return _KINDS.get(tensor.data_type)


def _put_back(tensor: onnx.TensorProto, field: int, data: bytes) -> None:
    tensor.MergeFromString(wire.delimited(field, data))
