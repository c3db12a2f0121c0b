"""Writing a session's weights and optimizer state into an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from ..errors import popart_exception
from ..model import external, tensors
from ..model.attribute_names import REPLICATION_FACTOR
from ..model.whole import write_model


def saved_model(
    proto: onnx.ModelProto, values: Mapping[str, np.ndarray], state: frozenset[str], placed: dict[str, onnx.TensorProto]
) -> onnx.ModelProto:
    """A copy of the original model with current values.

    Initializers keep their order and the field their data are in; optimizer state follows, sorted by name. Data of
    externally stored initializers are written into their files. `placed` keeps where state was put in such files, so
    that they grow once only.

    Raises
    ------
    popart_exception
        The file of an externally stored initializer is not found.
    """
    saved = onnx.ModelProto()
    saved.CopyFrom(proto)
    known = {t.name: t for t in saved.graph.initializer}
    for name, tensor in known.items():
        if name in values:
            _store(tensor, values[name])
    for name in sorted(state):
        if name in values:
            _add_state(saved.graph, {**known, **placed}, name, values[name], placed)
    return saved


def _store(tensor: onnx.TensorProto, value: np.ndarray) -> None:
    if not external.is_external(tensor):
        tensors.write(tensor, value)
        return
    place = external.locate(tensor)
    with open(place.path, "r+b") as file:
        file.seek(place.offset)
        file.write(value.astype(value.dtype.newbyteorder("<")).tobytes())


def _add_state(
    graph: onnx.GraphProto,
    known: Mapping[str, onnx.TensorProto],
    name: str,
    value: np.ndarray,
    placed: dict[str, onnx.TensorProto],
) -> None:
    """State of an externally stored weight goes to the end of that weight's file, other state into the model."""
    if name in known:
        _store(known[name], value)
        if name in placed:
            graph.initializer.add().CopyFrom(placed[name])
        return
    made = graph.initializer.add()
    made.CopyFrom(tensors.make(name, value).raw)
    owner = known.get(name.split("___", 1)[-1].removesuffix("_nesterovGrad"))
    if owner is None or not external.is_external(owner):
        return
    path = external.locate(owner).path
    data = value.astype(value.dtype.newbyteorder("<")).tobytes()
    with open(path, "ab") as file:
        offset = file.tell()
        file.write(data)
    external.mark_external(made, path, len(data), offset)
    placed[name] = onnx.TensorProto()
    placed[name].CopyFrom(made)


def embed_replication(proto: onnx.ModelProto, replicas: int) -> None:
    """Note in the model that grouped variables carry a leading dimension."""
    for entry in proto.metadata_props:
        if entry.key == REPLICATION_FACTOR:
            entry.value = str(replicas)
            return
    proto.metadata_props.add(key=REPLICATION_FACTOR, value=str(replicas))


def write_file(proto: onnx.ModelProto, path: str, *, beside: bool = False) -> None:
    """Write a model whole or not at all, large tensors in a second file if `beside`.

    Raises
    ------
    popart_exception
        The file can't be written.
    """
    try:
        write_model(proto, Path(path), beside=beside)
    except OSError as err:
        raise popart_exception(f"Failed to write the model to '{path}': {err}") from err


def initializer_values(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Values of a model's initializers, external ones read from their files."""
    return {
        t.name: external.read_external(t) if external.is_external(t) else tensors.read(t)
        for t in proto.graph.initializer
    }
