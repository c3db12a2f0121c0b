"""File, bytes, ModelProto or onnx_ir model in; `onnx_ir.Model` out, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.passes.common import InlinePass

from ..errors import popart_exception
from .sparse import densified, holds_sparse
from .tensors import StoredTensor, is_packed_half

ModelLike: TypeAlias = "str | Path | bytes | onnx.ModelProto | ir.Model"


def load(model: ModelLike) -> ir.Model:
    """Read a model with its model-local functions inlined; external data stay in their files until used.

    Raises
    ------
    popart_exception
        `model` is neither an existing file nor a serialised ModelProto.
    """
    read = _read(model)
    if read.functions:
        InlinePass()(read)
    return read


def _read(model: ModelLike) -> ir.Model:
    if isinstance(model, ir.Model):
        return model.clone()
    if isinstance(model, onnx.ModelProto):
        return _deserialized(model)
    if isinstance(model, (str, Path)) and _is_file(model):
        return _parse_file(Path(model))
    data = model.encode("utf-8", "surrogateescape") if isinstance(model, str) else bytes(model)
    return _parse_bytes(data)


def _is_file(name: str | Path) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def load_proto(model: str | bytes | Path | onnx.ModelProto) -> onnx.ModelProto:
    """A model as protobuf, by PopART's rule: the name of an existing file, else a serialised ModelProto.

    Raises
    ------
    popart_exception
        It is neither.
    """
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, (str, Path)) and _is_file(model):
        data, shown = Path(model).read_bytes(), str(model)
    else:
        data = model.encode("utf-8", "surrogateescape") if isinstance(model, str) else bytes(model)
        shown = data[:64].decode("utf-8", "replace")
    try:
        proto = onnx.load_model_from_string(data)
    except DecodeError as err:
        raise _unreadable(shown) from err
    if not proto.HasField("graph"):
        raise _unreadable(shown)
    return proto


def _deserialized(proto: onnx.ModelProto) -> ir.Model:
    """The IR knows no sparse tensors: they become dense."""
    if proto.graph.sparse_initializer:
        return ir.from_proto(densified(proto))
    try:
        return ir.from_proto(proto)
    except ir.serde.SerdeError as err:
        if not holds_sparse(proto):
            raise popart_exception(f"The model is invalid: {_innermost(err)}") from err
        return ir.from_proto(densified(proto))


def _innermost(err: BaseException) -> BaseException:
    """What went wrong, below the places where it did."""
    while err.__cause__ is not None:
        err = err.__cause__
    return err


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """The model of a ModelProto; packed halves are known, external data are found from the current directory."""
    model = _deserialized(proto)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.TensorProtoTensor) and is_packed_half(tensor.raw):
            value.const_value = StoredTensor(tensor.raw)
    return model


def _parse_file(path: Path) -> ir.Model:
    try:
        return ir.load(path)
    except DecodeError as err:
        raise _unreadable(str(path)) from err
    except ir.serde.SerdeError:
        return _deserialized(onnx.load(path))


def _parse_bytes(data: bytes) -> ir.Model:
    return from_proto(load_proto(data))


def _unreadable(shown: str) -> popart_exception:
    return popart_exception(
        f"Failed to load a ModelProto from the string '{shown}'. Check that it is either a valid path to an existing "
        "onnx model file, or is a valid onnx ModelProto string."
    )


def to_bytes(model: ir.Model) -> bytes:
    """Serialise a model as ONNX writes it."""
    return ir.to_proto(model).SerializeToString()
