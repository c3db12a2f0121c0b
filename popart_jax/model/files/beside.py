"""External data in the folder of the model, where ONNX looks for them.

PopART looks in the current directory, and `modelToHost` writes into such files. Both places work here, the model's
folder first; files there are only read, so that the model stays intact, and a copy gets its own data file. Files
that the program wrote by `saveInitializersExternally` follow PopART's rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from ...buffers import aligned_empty, frozen
from ...errors import popart_exception
from ..dtypes import element_type
from .external import Place, information, is_external, is_inside, is_there, locate, onnx_type, written_here


def take_in(proto: onnx.ModelProto, folder: Path, home: Path) -> dict[str, np.ndarray]:
    """Read data files in the model's folder; the message is changed so that nothing refers to them.

    `home` is where the model's file itself is, if `folder` holds a link to it. Returned are the data of initializers of
    the main graph, which the message lacks now; other tensors have their data in the message. Raises popart_exception
    for wrong information, or a file that ends early.
    """
    arrays: dict[str, np.ndarray] = {}
    for tensor in proto.graph.initializer:
        if _is_beside(tensor, folder, home):
            arrays[tensor.name] = _read(tensor, folder)
            _forget_place(tensor)
    for tensor in inner_tensors(proto.graph):
        if _is_beside(tensor, folder, home):
            data = _read(tensor, folder)
            _forget_place(tensor)
            tensor.raw_data = data.tobytes()
    return arrays


def _is_beside(tensor: onnx.TensorProto, folder: Path, home: Path) -> bool:
    location = information(tensor).get("location", "") if is_external(tensor) else ""
    there = folder / location
    if not location or not is_there(there) or not is_inside(location, folder, home):
        return False
    return not (written_here(there) and Path(location).is_file())


def _read(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    place: Place = locate(tensor, folder)
    kind = element_type(onnx_type(tensor)).numpy
    assert kind is not None
    array = aligned_empty(tuple(tensor.dims), kind.newbyteorder("<"))
    with open(place.path, "rb") as file:
        if place.offset > os.fstat(file.fileno()).st_size:
            raise popart_exception(f"The data of tensor '{tensor.name}' begin behind the end of file '{place.path}'.")
        file.seek(place.offset)
        missing = array.nbytes - file.readinto(array.reshape(-1).view(np.uint8).data) if array.nbytes else 0
    if missing:
        raise popart_exception(
            f"Invalid 'length' information ({place.length}) for externally stored tensor '{tensor.name}': "
            f"file '{place.path}' ends {missing} bytes early"
        )
    return frozen(array)


def _forget_place(tensor: onnx.TensorProto) -> None:
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def inner_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Tensors in attributes, and initializers of inner graphs."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            inner = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            for body in inner:
                yield from body.initializer
                yield from inner_tensors(body)
