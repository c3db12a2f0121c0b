"""External initializers by PopART's rules: locations are relative to the current directory, not to the model file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ipu_model.whole_files import replace_file

from ...errors import noted, popart_exception
from .. import tensors
from ..checks.structure import every_node
from ..dtypes import element_type


def is_external(proto: onnx.TensorProto) -> bool:
    """Whether the data are in another file."""
    return proto.data_location == onnx.TensorProto.EXTERNAL


def information(proto: onnx.TensorProto) -> dict[str, str]:
    """The external_data entries."""
    return {entry.key: entry.value for entry in proto.external_data}


def is_there(path: Path) -> bool:
    """Whether the file exists; False also for a path that the system refuses."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_external(proto: onnx.TensorProto) -> np.ndarray:
    """Values of an externally stored initializer.

    Raises popart_exception for missing or wrong information, or a file that cannot be read.
    """
    place = locate(proto)
    kind = element_type(onnx_type(proto)).numpy
    assert kind is not None
    try:
        array = np.fromfile(place.path, kind.newbyteorder("<"), place.length // kind.itemsize, offset=place.offset)
    except OSError as err:
        raise popart_exception(f"Unable to open file '{place.path}' to read tensor data for '{proto.name}'") from err
    missing = place.length - array.nbytes
    if missing:
        raise _bad_length(place.length, proto.name, f"file '{place.path}' ends {missing} bytes early")
    return array.astype(kind, copy=False).reshape(tuple(proto.dims))


def onnx_type(proto: onnx.TensorProto):
    """Element type of a proto."""
    return ir.DataType(proto.data_type)


class Place:
    """File, offset and length [bytes] of external data."""

    def __init__(self, path: str, offset: int, length: int) -> None:
        self.path, self.offset, self.length = path, offset, length


def locate(proto: onnx.TensorProto, folder: Path | None = None) -> Place:
    """Location of an external tensor's data, relative to a folder (default: the current one).

    Raises popart_exception where there is no location, no such file, or an offset or length that is no number or does
    not fit the shape.
    """
    given = information(proto)
    path = given.get("location")
    if not path:
        raise popart_exception(f"No location information for externally stored tensor '{proto.name}'")
    if folder is not None:
        path = str(folder / path)
    if not is_there(Path(path)):
        shown = path if len(path) < _LONG else f"{path[:_LONG]}..."
        raise popart_exception(f"Unrecognised file name '{shown}' for externally stored tensor '{proto.name}'")
    need = math.prod(proto.dims) * element_type(onnx_type(proto)).size
    length = _number(given, "length", need, proto.name)
    if length != need:
        raise _bad_length(length, proto.name, f"its shape needs {need} bytes")
    return Place(path, _number(given, "offset", 0, proto.name), length)


def _bad_length(length: int | None, tensor: str | None, why: str) -> popart_exception:
    text = f"Invalid 'length' information ({length}) for externally stored tensor '{tensor}'"
    return noted(popart_exception(text), why)


_LONG = 300
"""Characters of a path to show in messages; longer ones would hide the rest of the sentence."""

_DIGITS = 20
"""Digits of a number larger than any file; Python refuses to parse thousands of digits."""

_WRITTEN: set[Path] = set()
"""Files that this process made by `save_externally`: programs may read them from anywhere."""


def written_here(path: Path) -> bool:
    """Whether this process made a file by `save_externally`."""
    return path.resolve() in _WRITTEN


def check_reach(name: str | None, location: str) -> None:
    """Raise popart_exception for data outside of the current folder that this process did not write.

    A model from elsewhere could name files there to read or overwrite them.
    """
    if not is_there(Path(location)):
        return
    path = Path(location).resolve()
    if path.is_relative_to(Path.cwd().resolve()) or written_here(path):
        return
    raise popart_exception(
        f"Externally stored tensor '{name}' lies in '{location}', outside the folder of the model and the "
        "current one.\n  fix: move the file beside the model and save the model again; programs that import popart, or "
        "set the engine option popart_jax.strict, read any file, as PopART does."
    )


def check_numbers(proto: onnx.TensorProto) -> None:
    """Raise popart_exception unless offset and length of an external tensor are numbers, which onnx_ir assumes."""
    for key in ("offset", "length"):
        _number(information(proto), key, 0, proto.name)


def is_inside(location: str, folder: Path, home: Path) -> bool:
    """Whether a location names a file of the folder, links followed; links of the folder may lead to `home`."""
    root = folder.resolve()
    path, named = (root / location).resolve(), Path(os.path.abspath(root / location))
    return path.is_relative_to(root) or (named.is_relative_to(root) and path.is_relative_to(home.resolve()))


def check_external(model: ir.Model, folder: Path | None, home: Path | None = None) -> None:
    """Check that the files of a model's external tensors exist inside a folder and are long enough.

    `folder` is that of the model's file, None for the folder stored with each tensor; `home` is where the model's file
    is if `folder` holds only a link to it, as Hugging Face's cache does: links to data that lie there too are followed.
    Raises popart_exception that names the first that is not.
    """
    for _, tensor in held_tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            root = Path(_text(tensor.base_dir) if folder is None else folder)
            _check_place(tensor, root.resolve(), root if home is None else home)
    if folder is not None:
        _replace_external(model, _past_links)


def _text(path: Any) -> str:
    return str(path)


def _past_links(tensor: ir.ExternalTensor) -> ir.ExternalTensor:
    """A checked tensor by the real place of its file, since onnx_ir refuses links; installers make hard ones."""
    path = Path(tensor.path).resolve()
    if path.is_relative_to(Path(_text(tensor.base_dir)).resolve()) and path.stat().st_nlink == 1:
        return tensor
    shape, name = tensor.shape, tensor.name or ""
    return ir.ExternalTensor(str(path), tensor.offset, tensor.length, tensor.dtype, shape=shape, name=name)


def _check_place(tensor: ir.ExternalTensor, root: Path, home: Path) -> None:
    if not tensor.location:
        raise popart_exception(f"No location information for externally stored tensor '{tensor.name}'")
    shown = _text(tensor.location)[:_LONG]
    try:
        path = (root / tensor.location).resolve()
        there = path.is_file()
    except (OSError, ValueError, RuntimeError) as err:  # path too long, zero byte, cyclic links
        raise popart_exception(
            f"Unrecognised file name '{shown}' for externally stored tensor '{tensor.name}' ({type(err).__name__})."
        ) from err
    if not is_inside(_text(tensor.location), root, home):
        raise popart_exception(
            f"Externally stored tensor '{tensor.name}' lies in '{tensor.location}', outside the folder of the model, "
            f"'{root}'.\n  fix: move the file beside the model and save the model again."
        )
    if not there:
        raise popart_exception(
            f"Unrecognised file name '{shown}' for externally stored tensor '{tensor.name}': "
            f"there is no such file in '{root}'."
        )
    if tensor.dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        raise popart_exception(f"Externally stored tensor '{tensor.name}' is of type {tensor.dtype}: it has no size.")
    _check_size(tensor, path.stat().st_size)


def _check_size(tensor: ir.ExternalTensor, there: int) -> None:
    need, offset = tensor.nbytes, tensor.offset or 0
    if tensor.length not in (None, need):
        raise _bad_length(tensor.length, tensor.name, f"its shape needs {need} bytes")
    if offset + need > there:
        raise _bad_length(need, tensor.name, f"file '{tensor.location}' ends {offset + need - there} bytes early")


def held_tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Initializers of all graphs, and tensors in attributes, functions included, each with a description."""
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                yield f"Initializer '{name}'", value.const_value
    for nodes in (model.graph, *model.functions.values()):
        for node in every_node(nodes):
            for attribute in node.attributes.values():
                if attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                    owner = node.name or next((v.name for v in node.outputs if v.name), "")
                    yield f"Tensor '{attribute.value.name or attribute.name}' of node '{owner}'", attribute.value


def in_memory(model: ir.Model) -> ir.Model:
    """The model itself, with the data of external tensors read: initializers, and tensors in attributes."""
    _replace_external(model, _read_in)
    return model


def _replace_external(model: ir.Model, by: Callable[[ir.ExternalTensor], ir.TensorProtocol]) -> None:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = by(value.const_value)
    for nodes in (model.graph, *model.functions.values()):
        for node in every_node(nodes):
            for name, attribute in list(node.attributes.items()):
                if attribute.type is ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                    node.attributes[name] = ir.AttrTensor(name, by(attribute.value))


def _read_in(tensor: ir.ExternalTensor) -> ir.Tensor[np.ndarray]:
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)


def _number(given: Mapping[str, str], key: str, default: int, tensor: str) -> int:
    text = given.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < _DIGITS):
        raise popart_exception(f"Invalid '{key}' information ({text[:40]}) for externally stored tensor '{tensor}'")
    return int(text)


def save_externally(protos: Mapping[str, onnx.TensorProto], ids: Sequence[str], filename: str) -> None:
    """Write the raw little-endian data of some initializers to a file, in the order given, and mark them external.

    Raises popart_exception where the directory is missing, or one of the ids is no initializer, external already, or
    without data.
    """
    parent = Path(filename).parent
    if not parent.is_dir():
        raise popart_exception(f"Saving tensor data to file {filename}, but its parent directory does not exist")
    for name in ids:
        proto = protos.get(name)
        if proto is None:
            raise popart_exception(f"Tensor '{name}' is not an initializer")
        if is_external(proto):
            raise popart_exception(f"Tensor '{name}' already has an external data_location")
        if not has_data(proto):
            raise popart_exception(f"Tensor '{name}' has no data to save externally")
    arrays = [tensors.read(protos[name]) for name in ids]

    def fill(folder: Path) -> None:
        with open(folder / Path(filename).name, "wb") as file:
            for array in arrays:
                file.write(array.astype(array.dtype.newbyteorder("<")).tobytes())

    if Path(filename).is_dir():
        raise popart_exception(f"Failed to open file {filename}")
    replace_file(Path(filename), fill)
    _WRITTEN.add(Path(filename).resolve())
    offset = 0
    for name, array in zip(ids, arrays, strict=True):
        mark_external(protos[name], filename, array.nbytes, offset)
        offset += array.nbytes


def has_data(proto: onnx.TensorProto) -> bool:
    """Whether a proto holds data (or has no elements)."""
    fields = ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "raw_data", "string_data")
    return any(len(getattr(proto, f)) for f in fields) or 0 in proto.dims


def mark_external(proto: onnx.TensorProto, location: str, length: int, offset: int) -> None:
    """Clear the data and say where they are."""
    name, data_type, dims = proto.name, proto.data_type, list(proto.dims)
    proto.Clear()
    proto.name, proto.data_type = name, data_type
    proto.dims.extend(dims)
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", length), ("offset", offset)):
        proto.external_data.add(key=key, value=str(value))
