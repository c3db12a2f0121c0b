"""Writing a session's weights and optimizer state into an ONNX file."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from ...errors import popart_exception, popart_runtime_error
from ...model import tensors
from ...model.files import external
from ...model.files.stored import stored_floats, write_numbers
from ...model.files.stripped import StrippedModel
from ...model.files.whole import Patches, write_model


class ModelFiles:
    """Writes the model of a session, as it was read from `source`."""

    def __init__(self, source: StrippedModel) -> None:
        self._source = source
        self._placed: dict[str, onnx.TensorProto] = {}  # positions of state in files of external data

    def write(self, path: str, values: Mapping[str, np.ndarray], state: Collection[str]) -> None:
        """Write the model with current values; the names in `state` are optimizer state.

        A file that can't be written, and one of external data that is not there, raises popart_exception.
        """
        written = frozenset(n for n in state if n in values)
        try:
            saved = saved_model(self._source.whole(), values, written, self._placed)
        except OSError as err:
            raise popart_exception(f"Failed to write the weights that '{path}' keeps in other files: {err}") from err
        held = {t.name for t in saved.graph.initializer}
        elsewhere = {n: x for n, x in values.items() if n not in held and n not in state}
        write_file(_with_numbers(saved, elsewhere), path, beside=self._source.beside)

    def move_external_data(self, source: str, target: str) -> None:
        """Copy external data to a new file, and refer to that from now on."""
        move_external_data((*self._source.proto.graph.initializer, *self._placed.values()), source, target)


def _with_numbers(proto: onnx.ModelProto, numbers: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with new values for the stored tensors in `numbers`."""
    if not numbers:
        return proto
    model = ir.from_proto(proto)
    stored = stored_floats(model)
    write_numbers(stored, {n: x for n, x in numbers.items() if n in stored})
    return ir.to_proto(model)


def saved_model(
    proto: onnx.ModelProto, values: Mapping[str, np.ndarray], state: frozenset[str], placed: dict[str, onnx.TensorProto]
) -> onnx.ModelProto:
    """A copy of the original model with current values.

    Initializers keep their order and the field their data are in; optimizer state follows, sorted by name. Data of
    externally stored initializers are written into their files (popart_exception if one is missing). `placed` keeps
    where state was put in such files, so that they grow once only.
    """
    saved = onnx.ModelProto()
    saved.CopyFrom(proto)
    known, patches = {t.name: t for t in saved.graph.initializer}, Patches()
    for name, tensor in known.items():
        if name in values:
            _store(tensor, values[name], patches)
        elif external.is_external(tensor):
            external.locate(tensor)
    for name in sorted(state):
        if name in values:
            _add_state(saved.graph, {**known, **placed}, name, values[name], placed, patches)
    patches.apply()
    return saved


def _store(tensor: onnx.TensorProto, value: np.ndarray, patches: Patches) -> None:
    if not external.is_external(tensor):
        tensors.write(tensor, value)
        return
    place = external.locate(tensor)
    patches.put(place.path, value, place.offset)


def _add_state(
    graph: onnx.GraphProto,
    known: Mapping[str, onnx.TensorProto],
    name: str,
    value: np.ndarray,
    placed: dict[str, onnx.TensorProto],
    patches: Patches,
) -> None:
    """State of an externally stored weight goes to the end of that weight's file, other state into the model."""
    if name in known:
        _store(known[name], value, patches)
        if name in placed:
            graph.initializer.add().CopyFrom(placed[name])
        return
    made = graph.initializer.add()
    made.CopyFrom(tensors.make(name, value).raw)
    owner = known.get(name.split("___", 1)[-1].removesuffix("_nesterovGrad"))
    if owner is None or not external.is_external(owner):
        return
    path = external.locate(owner).path
    external.mark_external(made, path, value.nbytes, patches.put(path, value))
    placed[name] = onnx.TensorProto()
    placed[name].CopyFrom(made)


def write_file(proto: onnx.ModelProto, path: str, *, beside: bool = False) -> None:
    """Write a model whole or not at all (popart_exception), large tensors in a second file if `beside`."""
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


def move_external_data(tensors: Iterable[onnx.TensorProto], source: str, target: str) -> None:
    """Copy external data to a new file and let the tensors refer to that.

    Raises popart_runtime_error where the target exists, the source does not, or no initializer is stored there; looked
    for in this order.
    """
    start = f"Cannot update external tensor locations from '{source}' to '{target}', "
    if Path(target).exists():
        raise popart_runtime_error(f"{start}but file '{target}' already exists")
    if not Path(source).exists():
        raise popart_runtime_error(f"{start}but file '{source}' does not exist")
    moved = [
        entry
        for tensor in tensors
        if external.is_external(tensor)
        for entry in tensor.external_data
        if entry.key == "location" and entry.value == source
    ]
    if not moved:
        raise popart_runtime_error(f"{start}No ONNX model initializers have external location set to '{source}'")
    shutil.copyfile(source, target)
    for entry in moved:
        entry.value = target
