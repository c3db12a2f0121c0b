"""The ONNX checker, with PopART's exception class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from .. import tensors
from ..files.external import information, is_external


def check_model(proto: onnx.ModelProto) -> None:
    """Run the ONNX checker.

    Raises RuntimeError where the model breaks a rule of ONNX, or an external data file is missing (looked for from the
    current directory).
    """
    _require_external_files(proto.graph)
    try:
        onnx.checker.check_model(_as_the_checker_wants_it(proto))
    except (onnx.checker.ValidationError, UnicodeDecodeError) as err:  # the latter: a message with invalid UTF-8
        raise RuntimeError(str(err)) from None


def _require_external_files(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        path = information(tensor).get("location") if is_external(tensor) else None
        if path and not Path(path).is_file():
            raise RuntimeError(
                f"Data of TensorProto ( tensor name: {tensor.name}) should be stored in {path}, but it doesn't "
                "exist or is not accessible."
            )


def _as_the_checker_wants_it(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy that the checker accepts where PopART is more permissive.

    Packed data are converted to ONNX's layout. External initializers lose their location: the files are known to
    exist, and the checker refuses absolute locations.
    """
    if not any(tensors.is_packed(t) or is_external(t) for t in _stored_tensors(proto.graph)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in _stored_tensors(copy.graph):
        if is_external(tensor):
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
        elif tensors.is_packed(tensor):
            array = tensors.read(tensor)
            tensor.ClearField("int32_data")
            tensor.ClearField("uint64_data")
            tensor.raw_data = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return copy


def _stored_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers, and tensors in attributes of nodes."""
    yield from graph.initializer
    yield from (a.t for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.TENSOR)
